//! Who may use which of the free blocks.
//!
//! ```text
//! free blocks: | for everybody | reserved for root (s_r_blocks_count) | pool |
//!              '- ordinary -----'
//!              '- privileged ------------------------------------------'
//!              '- nodes of existing extent trees --------------------------------'
//! ```
//! - Blocks *reserved for root* are for root, for the user `s_def_resuid` and, if it is not root's, for the group
//!   `s_def_resgid`.
//! - The *pool* is for nodes that an extent tree needs when blocks that it has already are written, zeroed or punched out.
//!   Without it, writing into preallocated space would fail on a full volume. Its size is that of ext4's
//!   reserved clusters: 2 % of the volume, at most 4096 blocks. A node holds 340 extents, so a volume of up to 800 MB
//!   never needs more.
//!
//! An operation takes blocks for the thread's current [`Spender`]; outside of [`spending_as`] that is a privileged one:
//! recovery, opening and closing must not fail for want of blocks that are free.

use std::cell::Cell;

use super::value::Facts;

/// The pool is this part of the volume.
const POOL_DIVISOR: u64 = 50;
/// Blocks of the largest pool.
const POOL_COUNT_MAX: u64 = 4096;

/// On whose behalf an operation takes blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spender {
    /// May use the blocks that are reserved for root.
    Privileged,
    /// May not.
    Ordinary,
}

thread_local! {
    static CURRENT: Cell<Spender> = const { Cell::new(Spender::Privileged) };
}

/// Sets the former spender again, also when a panic unwinds.
struct Restore(Spender);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Runs `operations`, all of this thread, on behalf of `spender`.
pub fn spending_as<T>(spender: Spender, operations: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.replace(spender));
    operations()
}

/// The spender of this thread.
pub(crate) fn current_spender() -> Spender {
    CURRENT.get()
}

impl Facts {
    /// What a user with this group is, as far as the superblock tells.
    pub(crate) fn spender(&self, uid: u32, gid: u32) -> Spender {
        let reserved_uid = u32::from(self.superblock.s_def_resuid.get());
        let is_in_group = self.reserved_group() == Some(gid);
        if uid == 0 || uid == reserved_uid || is_in_group {
            Spender::Privileged
        } else {
            Spender::Ordinary
        }
    }

    /// The group whose members may use the blocks that are reserved for root; `None`: there is none but root.
    pub(crate) fn reserved_group(&self) -> Option<u32> {
        Some(u32::from(self.superblock.s_def_resgid.get())).filter(|gid| *gid != 0)
    }

    /// Blocks in the pool when the volume is not full.
    fn pool_block_count(&self) -> u64 {
        (self.geometry.block_count / POOL_DIVISOR).min(POOL_COUNT_MAX)
    }

    /// Free blocks that are not for this spender.
    pub(crate) fn withheld_block_count(&self, spender: Spender) -> u64 {
        let for_root = match spender {
            Spender::Privileged => 0,
            Spender::Ordinary => self.superblock.reserved_block_count(self.geometry.wide),
        };
        for_root.saturating_add(self.pool_block_count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spender_is_the_threads_own_and_nests() {
        assert_eq!(current_spender(), Spender::Privileged);
        spending_as(Spender::Ordinary, || {
            assert_eq!(current_spender(), Spender::Ordinary);
            spending_as(Spender::Privileged, || assert_eq!(current_spender(), Spender::Privileged));
            assert_eq!(current_spender(), Spender::Ordinary);
            let other = std::thread::spawn(current_spender).join();
            assert_eq!(other.expect("no panic"), Spender::Privileged);
        });
        let panicked = std::panic::catch_unwind(|| spending_as(Spender::Ordinary, || panic!("x")));
        assert!(panicked.is_err() && current_spender() == Spender::Privileged);
    }
}
