//! Opening and closing. The kernel sends these requests only to a mount that offers atomic writes.
//! Only there can opening an immutable or append-only file be refused: the kernel does not know
//! these flags.
//!
//! A FLUSH comes whenever a descriptor is closed, by close(2) or with its process, and before the
//! locks of the process on the file are released. So an atomic write is undone before another
//! process can get the lock. A FLUSH also comes when a copy of the descriptor is closed (dup, or a
//! child's after fork). That ends the atomic write as well, and the holder's next calls fail.

use ext4::NewNode;
use fuse::abi::{CreateIn, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, FlushIn, OpenIn, OpenOut, ReleaseIn};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::adapter::atomic::writes::AtomicWrites;
use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;
use crate::adapter::operations::ioctl::{FS_APPEND_FL, FS_IMMUTABLE_FL};
use crate::convert::{entry_out, permissions};

/// `O_ACCMODE`, with `O_RDONLY` being 0.
const ACCESS_MODE: u32 = 3;

impl<'a> Call<'a, '_> {
    fn atomic(&self) -> Result<&'a AtomicWrites, Errno> {
        self.adapter.atomic.as_ref().ok_or(Errno::NOSYS)
    }

    pub(super) fn open(&mut self) -> Outcome {
        let atomic = self.atomic()?;
        let open: OpenIn = self.body.take()?;
        check_open(self.volume.get_attr(self.ino()?)?.flags, open.flags)?;
        self.push_open(atomic, open.flags)
    }

    pub(super) fn create(&mut self) -> Outcome {
        let atomic = self.atomic()?;
        let create: CreateIn = self.body.take()?;
        let name = self.body.take_name()?;
        let (mode, umask) = (permissions(create.mode), permissions(create.umask));
        self.make(name, NewNode::Regular, mode, umask)?;
        self.push_open(atomic, create.flags)
    }

    fn push_open(&mut self, atomic: &AtomicWrites, flags: u32) -> Outcome {
        let is_writable = flags & ACCESS_MODE != 0;
        // Only who may write can have an atomic write to end.
        let no_flush = if is_writable { 0 } else { FOPEN_NOFLUSH };
        let (fh, open_flags) = (atomic.new_handle(is_writable), FOPEN_KEEP_CACHE | no_flush);
        Ok(self.reply.push(&OpenOut { fh, open_flags, backing_id: 0 })?)
    }

    /// `O_TMPFILE`: a file without a name, to which LINK may give one. It comes open, also where
    /// nothing is kept for open files.
    pub(super) fn tmpfile(&mut self) -> Outcome {
        let create: CreateIn = self.body.take()?;
        let (mode, umask) = (permissions(create.mode), permissions(create.umask));
        let attr = self.volume.make_unnamed(self.ino()?, mode, umask, self.owner())?;
        self.adapter.note_sync_flag(&attr);
        self.reply.push(&entry_out(&attr))?;
        match &self.adapter.atomic {
            Some(atomic) => self.push_open(atomic, create.flags),
            None => Ok(self.reply.push(&OpenOut {
                open_flags: FOPEN_KEEP_CACHE | FOPEN_NOFLUSH,
                ..OpenOut::default()
            })?),
        }
    }

    pub(super) fn flush(&mut self) -> Outcome {
        let atomic = self.atomic()?;
        let flush: FlushIn = self.body.take()?;
        atomic.lose(self.ino()?, flush.fh, &self.adapter.counters);
        Ok(())
    }

    pub(super) fn release(&mut self) -> Outcome {
        if let Some(atomic) = &self.adapter.atomic {
            let release: ReleaseIn = self.body.take()?;
            atomic.abort(self.ino()?, release.fh, &self.adapter.counters);
        }
        Ok(())
    }
}

/// Refuses what the flags of the inode forbid. Cutting it on the way is a request of its own.
fn check_open(inode_flags: u32, open_flags: u32) -> Result<(), Errno> {
    let is_writable = open_flags & ACCESS_MODE != 0;
    let appends = open_flags & OFlags::APPEND.bits() != 0;
    let is_refused =
        inode_flags & FS_IMMUTABLE_FL != 0 || inode_flags & FS_APPEND_FL != 0 && !appends;
    if is_writable && is_refused { Err(Errno::PERM) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_appends_may_open_an_append_only_file_to_write() {
        let append = OFlags::APPEND.bits();
        for (inode_flags, refused) in
            [(0, vec![]), (FS_APPEND_FL, vec![1, 2]), (FS_IMMUTABLE_FL, vec![1, 2, 1 | append])]
        {
            for open_flags in [0, append, 1, 2, 1 | append] {
                let is_refused = check_open(inode_flags, open_flags).is_err();
                assert_eq!(is_refused, refused.contains(&open_flags), "{inode_flags} {open_flags}");
            }
        }
    }
}
