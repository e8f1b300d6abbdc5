//! What writes back the pages that the kernel holds, before SYNCFS is answered.
//!
//! Since Linux 7.0, sync(2) does not wait until a FUSE file system has the pages that programs
//! changed, and sends SYNCFS at once. syncfs(2) does wait. So another process calls it: if it was
//! this one, and it was killed, its thread would wait in the kernel for its own answer.

use std::fmt;
use std::io;

/// Writes back the pages that the kernel holds of a mounted volume.
pub trait PageWriter: fmt::Debug + Send + Sync {
    /// Returns when the volume has all pages that were changed before, for a SYNCFS of the process
    /// `sender` (0: not known). Does nothing if the kernel has waited for them itself.
    ///
    /// `writes` is the number of writes that the volume has served: while it grows, there is no
    /// limit of time.
    ///
    /// # Errors
    /// The pages may not have been written: nothing about them may be promised.
    fn write_back(&self, sender: u32, writes: &dyn Fn() -> u64) -> io::Result<()>;
}
