//! Tells whether this process made a value, or was forked from the process that made it.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::mapping::words::SharedWords;

/// A word that is zero in a forked process (`MADV_WIPEONFORK`, Linux 4.14). Asking takes one load,
/// while `getpid` is a system call.
pub struct ForkMark(SharedWords);

impl ForkMark {
    /// The mark of this process.
    pub fn new() -> Result<ForkMark> {
        let words = SharedWords::wiped_on_fork(1)?;
        words.word(0).store(1, Ordering::Relaxed);
        Ok(ForkMark(words))
    }

    /// Whether this process made the mark.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.0.word(0).load(Ordering::Relaxed) != 0
    }
}
