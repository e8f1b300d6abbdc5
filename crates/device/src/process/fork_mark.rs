//! Whether a process is the one that made something, or was forked from it.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::mapping::words::SharedWords;

/// A word that is zero in a forked process (`MADV_WIPEONFORK`, Linux 4.14): asking takes one load, where `getpid` is
/// a system call.
pub struct ForkMark(SharedWords);

impl ForkMark {
    /// The mark of this process.
    pub fn new() -> Result<ForkMark> {
        let words = SharedWords::wiped_on_fork(1)?;
        words.word(0).store(1, Ordering::Relaxed);
        Ok(ForkMark(words))
    }

    /// Whether this process made it.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.0.word(0).load(Ordering::Relaxed) != 0
    }
}
