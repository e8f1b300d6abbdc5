//! Attributes of inodes, and of the volume.

use ext4::{Attr, Error, SetAttr, SetTime};
use fuse::abi::{GETATTR_FH, GetattrIn, SetattrIn, StatfsOut, fattr};
use rustix::io::Errno;

use crate::adapter::atomic::writes::AtomicSizes;
use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;
use crate::adapter::operations::ioctl::FS_IMMUTABLE_FL;
use crate::convert::{attr_out, node_of, permissions, statx_out, timestamp};
use crate::session_options::Order;

const NAME_MAX_BYTES: u32 = 255;

impl Call<'_, '_> {
    pub(super) fn getattr(&mut self) -> Outcome {
        self.tell_lost_writes()?;
        let atomic_sizes = self.atomic_sizes();
        let attr = self.volume.get_attr(self.ino()?)?;
        self.push_attr(&attr, &atomic_sizes)
    }

    /// The error of pages of this file that were lost, if a `write` asks and would fail as well.
    fn tell_lost_writes(&mut self) -> Outcome {
        let ino = self.ino()?;
        let Some(errno) = self.adapter.lost_writes.of(ino) else { return Ok(()) };
        let getattr: GetattrIn = self.body.take()?;
        if getattr.getattr_flags & GETATTR_FH == 0 {
            // The kernel knows the attributes then, and `write` would not ask.
            if let Some(notifier) = &self.adapter.notifier {
                notifier.drop_attributes(node_of(ino));
            }
            return Ok(());
        }
        let attr = self.volume.get_attr(ino)?;
        let would_fail = match errno {
            Errno::NOSPC => !self.volume.has_room(self.volume.spender(attr.uid, attr.gid)),
            Errno::PERM => attr.flags & FS_IMMUTABLE_FL != 0,
            // The kernel has a size that the file cannot have, and appends would be lost there.
            Errno::FBIG => true,
            _ => self.volume.is_read_only(),
        };
        if would_fail {
            return Err(errno.into());
        }
        self.adapter.lost_writes.forget(ino);
        Ok(())
    }

    fn push_attr(&mut self, attr: &Attr, atomic_sizes: &AtomicSizes<'_>) -> Outcome {
        let mut out = attr_out(attr);
        atomic_sizes.correct(attr.ino, &mut out.attr.size, &mut out.attr_valid);
        Ok(self.reply.push(&out)?)
    }

    pub(super) fn statx(&mut self) -> Outcome {
        let atomic_sizes = self.atomic_sizes();
        let attr = self.volume.get_attr(self.ino()?)?;
        let mut out = statx_out(&attr);
        atomic_sizes.correct(attr.ino, &mut out.stat.size, &mut out.attr_valid);
        Ok(self.reply.push(&out)?)
    }

    pub(super) fn setattr(&mut self) -> Outcome {
        let ino = self.ino()?;
        let request: SetattrIn = self.body.take()?;
        let mut change = wanted_change(&request)?;
        // A change of the owner takes the privileges off a file, also if root makes it (the volume
        // leaves directories alone).
        change.kill_suid_sgid |= change.uid.is_some() || change.gid.is_some();
        change.kill_sgid = change.kill_suid_sgid && self.drops_group_id(ino)?;
        let atomic_sizes = self.atomic_sizes();
        let no_atomic = change.size_bytes.map(|_| self.without_atomic_write(ino)).transpose()?;
        let attr = match self.volume.set_attr(ino, &change) {
            Err(Error::NotPermitted) if self.is_flush_of_times(&request) => {
                let (mtime, ctime) = (Some(SetTime::Now), None);
                match self.volume.set_attr(ino, &SetAttr { mtime, ctime, ..change }) {
                    // It was made immutable after it was written: it keeps the times of that.
                    Err(Error::NotPermitted) => self.volume.get_attr(ino)?,
                    set => set?,
                }
            }
            set => set?,
        };
        if change.mode.is_some() {
            self.adapter.privileges.changed(ino);
        }
        if self.adapter.order() == Order::Sync {
            self.note_kernel_attributes(&change, &attr);
        }
        // What follows looks into the table once more.
        drop(no_atomic);
        self.push_attr(&attr, &atomic_sizes)
    }

    /// Notes which attributes the kernel has now.
    fn note_kernel_attributes(&self, change: &SetAttr, attr: &Attr) {
        let (mtime, ctime) = (change.mtime.map(|_| attr.mtime), change.ctime.map(|_| attr.ctime));
        self.adapter.kernel_times.note_told(attr.ino, mtime, ctime);
        if change.size_bytes.is_some() {
            self.adapter.lost_writes.forget(attr.ino);
        }
    }

    /// With [`Order::Sync`] the kernel has the times of what was written, and tells them later: of
    /// a file that can only be appended to, which takes none from anybody else.
    fn is_flush_of_times(&self, request: &SetattrIn) -> bool {
        self.adapter.order() == Order::Sync
            && request.valid & !fattr::FH == fattr::MTIME | fattr::CTIME
    }

    pub(super) fn statfs(&mut self) -> Outcome {
        let stat = self.volume.stat_fs()?;
        Ok(self.reply.push(&StatfsOut {
            blocks: stat.block_count,
            bfree: stat.free_block_count,
            bavail: stat.available_block_count,
            files: stat.inode_count,
            ffree: stat.free_inode_count,
            bsize: stat.block_bytes,
            frsize: stat.block_bytes,
            namelen: NAME_MAX_BYTES,
            ..StatfsOut::default()
        })?)
    }
}

fn wanted_change(request: &SetattrIn) -> Result<SetAttr, Errno> {
    let has = |bit| request.valid & bit != 0;
    let time = |set, now, seconds, nanoseconds| -> Result<Option<SetTime>, Errno> {
        match (has(now), has(set)) {
            (true, _) => Ok(Some(SetTime::Now)),
            (false, true) => Ok(Some(SetTime::To(timestamp(seconds, nanoseconds)?))),
            (false, false) => Ok(None),
        }
    };
    let ctime =
        if has(fattr::CTIME) { Some(timestamp(request.ctime, request.ctimensec)?) } else { None };
    Ok(SetAttr {
        mode: has(fattr::MODE).then_some(permissions(request.mode)),
        uid: has(fattr::UID).then_some(request.uid),
        gid: has(fattr::GID).then_some(request.gid),
        size_bytes: has(fattr::SIZE).then_some(request.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, request.atime, request.atimensec)?,
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, request.mtime, request.mtimensec)?,
        ctime,
        kill_suid_sgid: has(fattr::KILL_SUIDGID),
        kill_sgid: false,
        flags: None,
    })
}

#[cfg(test)]
mod tests {
    use ext4::Timestamp;

    use super::*;

    #[test]
    fn only_what_is_marked_valid_is_changed() {
        let request = SetattrIn {
            valid: fattr::MODE | fattr::MTIME | fattr::ATIME | fattr::ATIME_NOW,
            mode: 0o100_640,
            uid: 7,
            size: 9,
            mtime: 5,
            mtimensec: 6,
            ..SetattrIn::default()
        };
        let mtime = Timestamp { seconds: 5, nanoseconds: 6 };
        let expected = SetAttr {
            mode: Some(0o640),
            mtime: Some(SetTime::To(mtime)),
            atime: Some(SetTime::Now),
            ..SetAttr::default()
        };
        assert_eq!(wanted_change(&request), Ok(expected));
        let bad = SetattrIn { mtimensec: u32::MAX, ..request };
        assert_eq!(wanted_change(&bad), Err(Errno::INVAL));
    }
}
