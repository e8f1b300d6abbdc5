//! The access time that reading sets.

use crate::inode::{Inode, flags, read_inode};
use crate::memory::Mounted;
use crate::op::credits;
use crate::{Result, Timestamp};

/// Access times are brought up to date when they are older than this, in seconds.
const ATIME_AGE_MAX_SECONDS: i64 = 24 * 60 * 60;

impl Mounted {
    /// The inode was read (file content, directory, symbolic link). Sets its access time if that is
    /// not newer than the last change, or is a day old, unless the volume is open with `noatime`.
    /// Otherwise this costs nothing.
    pub(super) fn note_access(&self, inode: &Inode) -> Result<()> {
        let is_kept = self.is_read_only() || self.settings.noatime;
        if is_kept || !is_access_due(inode, self.settings.times.about_now()) {
            return Ok(());
        }
        self.as_root().with_op(credits::PUT_INODE, |op| {
            let mut inode = read_inode(op, inode.ino)?;
            if is_access_due(&inode, op.now()) {
                inode.set_atime(op.now());
                op.store_inode(&inode)?;
            }
            Ok(())
        })
    }
}

fn is_access_due(inode: &Inode, now: Timestamp) -> bool {
    if inode.has_flag(flags::NOATIME) {
        return false;
    }
    let atime = inode.atime();
    let is_old = now.seconds.saturating_sub(atime.seconds) >= ATIME_AGE_MAX_SECONDS;
    // A clock that stands still must not make every read a write.
    (is_old || atime <= inode.mtime() || atime <= inode.ctime()) && atime != now
}
