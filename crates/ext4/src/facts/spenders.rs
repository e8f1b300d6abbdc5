//! Which of the free blocks an operation may use.
//!
//! ```text
//! free blocks: | for everybody | reserved for root (s_r_blocks_count) | pool |
//!              '- ordinary -----'
//!              '- privileged ------------------------------------------'
//!              '- nodes of existing extent trees --------------------------------'
//! ```
//! - Blocks *reserved for root* are for root, for the user `s_def_resuid`, and for the group
//!   `s_def_resgid` unless that is root's group.
//! - The *pool* is for nodes that an extent tree needs when blocks that the file already has are
//!   written, zeroed or punched out. Without the pool, writing into preallocated space would fail
//!   on a full volume. It has the size of ext4's reserved clusters: 2 % of the volume, at most 4096
//!   blocks. A node holds 340 extents, so a volume of up to 800 MB never needs more.
//!
//! An operation takes blocks for the thread's current [`Spender`]. Outside of [`spending_as`] that
//! is a privileged one: recovery, opening and closing must not fail while free blocks exist.

use std::cell::Cell;

use super::value::Facts;

/// The pool is this fraction of the volume.
const POOL_DIVISOR: u64 = 50;
/// Blocks of the largest pool.
const POOL_COUNT_MAX: u64 = 4096;

/// The kind of user for whom an operation takes blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spender {
    /// May use the blocks that are reserved for root.
    Privileged,
    /// May not use them.
    Ordinary,
}

thread_local! {
    static CURRENT: Cell<Spender> = const { Cell::new(Spender::Privileged) };
}

/// Restores the previous spender, also when a panic unwinds.
struct Restore(Spender);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Runs `operations`, all in this thread, for `spender`.
pub fn spending_as<T>(spender: Spender, operations: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.replace(spender));
    operations()
}

/// The spender of this thread.
pub(crate) fn current_spender() -> Spender {
    CURRENT.get()
}

impl Facts {
    /// The kind of a user with this group, by the superblock.
    pub(crate) fn spender(&self, uid: u32, gid: u32) -> Spender {
        let reserved_uid = u32::from(self.superblock.s_def_resuid.get());
        let is_in_group = self.reserved_group() == Some(gid);
        if uid == 0 || uid == reserved_uid || is_in_group {
            Spender::Privileged
        } else {
            Spender::Ordinary
        }
    }

    /// The group whose members may use the blocks that are reserved for root. `None`: only root
    /// may.
    pub(crate) fn reserved_group(&self) -> Option<u32> {
        Some(u32::from(self.superblock.s_def_resgid.get())).filter(|gid| *gid != 0)
    }

    /// Blocks in the pool while the volume is not full.
    fn pool_block_count(&self) -> u64 {
        (self.geometry.block_count / POOL_DIVISOR).min(POOL_COUNT_MAX)
    }

    /// Free blocks that this spender may not use.
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
