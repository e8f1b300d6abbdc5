//! File data: reading, writing, allocating, and making it durable.

use std::sync::atomic::Ordering;

use ext4::{Allocate, Error, InodeNo, SeekTo, SetAttr, Synced, WhenDurable};
use fuse::abi::{
    FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, LseekOut, Opcode, ReadIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};
use fuse::{CAP_FSETID, Caller, PAGE_BYTES};
use journal::JournalError;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::adapter::atomic::writes::{AtomicWrites, Route, Table};
use crate::adapter::call::Call;
use crate::adapter::failure::{Failure, Outcome};
use crate::adapter::kernel_times::Arrival;
use crate::convert::{SET_GROUP_ID, SET_GROUP_ID_PROGRAM, SUID_SGID, node_of};
use crate::session_options::Order;
use crate::stat::AdapterCounters;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

const FALLOC_KEEP_SIZE: u32 = 0x01;
const FALLOC_PUNCH_HOLE: u32 = 0x02;
const FALLOC_ZERO_RANGE: u32 = 0x10;

/// Smallest page of the kernel's cache.
const PAGE: u64 = PAGE_BYTES as u64;

const CAPABILITY_XATTR: &[u8] = b"security.capability";

impl<'a> Call<'a, '_> {
    pub(super) fn read(&mut self) -> Outcome {
        let ino = self.ino()?;
        let read: ReadIn = self.body.take()?;
        let len_bytes = usize::try_from(read.size).map_err(|_| Errno::INVAL)?;
        let out = self.reply.spare(len_bytes)?;
        let notes_access = read.flags & OFlags::NOATIME.bits() == 0;
        let read_bytes = match &self.adapter.atomic {
            Some(atomic) => atomic.read(&self.volume, ino, read.offset, out, notes_access)?,
            None => self.volume.read_noting(ino, read.offset, out, notes_access)?,
        };
        assert!(read_bytes <= len_bytes, "read more than asked for");
        self.reply.advance(read_bytes);
        Ok(())
    }

    pub(super) fn write(&mut self) -> Outcome {
        let ino = self.ino()?;
        let write: WriteIn = self.body.take()?;
        let data = self.body.take_bytes(write.size)?;
        // For pages that the kernel writes back it did so before it changed them. Since then the
        // file may have got new ones.
        if write.write_flags & WRITE_CACHE == 0 {
            self.drop_privileges(ino, write.write_flags & WRITE_KILL_SUIDGID != 0)?;
        }
        let Some(atomic) = &self.adapter.atomic else {
            let _arrival = self.arrival(ino)?;
            return self.write_through(ino, &write, write.offset, data);
        };
        match atomic.route(ino, &write)? {
            Route::Overlay(file) => {
                if write.write_flags & WRITE_KILL_SUIDGID != 0 {
                    self.drop_ids(ino, false)?;
                }
                atomic.write(&self.volume, &file, write.offset, data)?;
                Ok(self.answer_write(data.len())?)
            }
            Route::Volume(table) => {
                let offset = self.end_to_append_at(&table, ino, &write)?;
                self.write_through(ino, &write, offset, data)?;
                drop(table);
                if offset != write.offset {
                    self.note_moved_append(atomic, ino, &write, offset);
                }
                Ok(())
            }
        }
    }

    /// While the content of a file changes whose times the kernel has.
    fn arrival(&self, ino: InodeNo) -> ext4::Result<Option<Arrival<'a>>> {
        let adapter = self.adapter;
        let is_told_late = adapter.order() == Order::Sync;
        is_told_late.then(|| adapter.kernel_times.arrival(self.volume, ino)).transpose()
    }

    /// Where to write: the kernel appends at a stale end after an atomic write was dropped.
    fn end_to_append_at(
        &self,
        table: &Table,
        ino: InodeNo,
        write: &WriteIn,
    ) -> Result<u64, Failure> {
        let appends = write.flags & OFlags::APPEND.bits() != 0;
        if !appends
            || write.write_flags & WRITE_CACHE != 0
            || !table.is_stale_end(ino, write.offset)
        {
            return Ok(write.offset);
        }
        Ok(self.volume.peek_attr(ino)?.size_bytes.min(write.offset))
    }

    /// The kernel has the data of an append in the wrong pages, and the wrong size. It holds the
    /// last of these pages until the write is answered, so this thread does not wait until that
    /// page is dropped.
    fn note_moved_append(&self, atomic: &AtomicWrites, ino: InodeNo, write: &WriteIn, offset: u64) {
        let stale_end = write.offset + u64::from(write.size);
        atomic.move_stale_end(ino, stale_end);
        let end = (offset + u64::from(write.size)).min((stale_end - 1) / PAGE * PAGE);
        if offset < end {
            let _ = self.drop_pages(ino, (offset, end - offset));
        }
        if let Some(notifier) = &self.adapter.notifier {
            drop(notifier.drop_pages(node_of(ino), vec![(offset, 0)]));
        }
    }

    /// Writes to the volume.
    fn write_through(
        &mut self,
        ino: InodeNo,
        write: &WriteIn,
        offset: u64,
        data: &[u8],
    ) -> Outcome {
        let (volume, unique) = (self.volume, self.header.unique);
        let kill = write.write_flags & WRITE_KILL_SUIDGID != 0;
        let mut answered = None;
        let written = volume.write_accepting(ino, offset, data, kill, &mut |bytes| {
            answered = Some(self.answer_write(bytes));
            self.reply.send_early(unique);
        });
        let written_bytes = match written {
            Err(Error::NotPermitted) if write.write_flags & WRITE_CACHE != 0 => {
                self.append_of_pages(ino, offset, data, kill)?
            }
            written => written?,
        };
        let written_bytes = match write.write_flags & WRITE_CACHE {
            0 => written_bytes,
            _ => self.write_rest(ino, offset, data, written_bytes, kill)?,
        };
        Ok(answered.unwrap_or_else(|| self.answer_write(written_bytes))?)
    }

    /// Writes what is left of pages that the kernel writes back, or fails: it takes any answer
    /// about them for success, and forgets them.
    fn write_rest(
        &self,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
        mut written_bytes: usize,
        kill: bool,
    ) -> ext4::Result<usize> {
        while written_bytes < data.len() {
            let (offset, rest) = (offset + written_bytes as u64, &data[written_bytes..]);
            written_bytes += self.volume.write_accepting(ino, offset, rest, kill, &mut |_| {})?;
        }
        Ok(written_bytes)
    }

    /// Writes what pages that the kernel writes back add to a file that can only be appended to.
    /// They hold what is there before, too; a change of that is refused.
    fn append_of_pages(
        &self,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
        kill: bool,
    ) -> Result<usize, Failure> {
        let size_bytes = self.volume.peek_attr(ino)?.size_bytes;
        let known_bytes = usize::try_from(size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (known, added) = data.split_at(known_bytes.min(data.len()));
        let mut found = vec![0; known.len()];
        if self.volume.read(ino, offset, &mut found)? < known.len() || found != known {
            return Err(Errno::PERM.into());
        }
        let added_bytes = match added.is_empty() {
            true => 0,
            false => self.volume.write_accepting(ino, size_bytes, added, kill, &mut |_| {})?,
        };
        Ok(known.len() + added_bytes)
    }

    fn answer_write(&mut self, written_bytes: usize) -> Result<(), Errno> {
        let counters = &self.adapter.counters;
        AdapterCounters::add(&counters.app_writes, 1);
        AdapterCounters::add(&counters.app_bytes, written_bytes as u64);
        let size = u32::try_from(written_bytes).map_err(|_| Errno::IO)?;
        self.reply.push(&WriteOut { size, padding: 0 })
    }

    /// Before a file's content changes: takes its capabilities off, if it has any. If the request
    /// says that set-user-ID and set-group-ID go (`kill`), also a set-group-ID bit that stays for
    /// members of the file's group.
    pub(super) fn drop_privileges(&self, ino: InodeNo, kill: bool) -> Outcome {
        let has_none = self.adapter.privileges.check(ino, || {
            if self.volume.peek_attr(ino)?.mode & SET_GROUP_ID_PROGRAM == SET_GROUP_ID {
                return Ok(false);
            }
            match self.volume.get_xattr(ino, CAPABILITY_XATTR) {
                Ok(_) => Ok(false),
                Err(Error::NoAttribute | Error::NotSupported) => Ok(true),
                Err(error) => Err(error),
            }
        })?;
        if has_none || self.volume.is_read_only() {
            return Ok(());
        }
        if kill && self.drops_group_id(ino)? {
            self.drop_ids(ino, true)?;
        }
        match self.volume.remove_xattr(ino, CAPABILITY_XATTR) {
            Ok(()) | Err(Error::NoAttribute) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// For a request that does not say whether its sender may keep set-user-ID and set-group-ID.
    pub(super) fn drop_ids_unless_capable(&self, ino: InodeNo) -> Outcome {
        let has_ids = self.volume.peek_attr(ino)?.mode & SUID_SGID != 0;
        if has_ids && !Caller::of(&self.header).has_capability(CAP_FSETID) {
            self.drop_ids(ino, self.drops_group_id(ino)?)?;
        }
        Ok(())
    }

    fn drop_ids(&self, ino: InodeNo, kill_sgid: bool) -> Outcome {
        let change = SetAttr { kill_suid_sgid: true, kill_sgid, ..SetAttr::default() };
        self.volume.set_attr(ino, &change)?;
        Ok(())
    }

    /// FSYNC and FSYNCDIR: answered when it is durable, by this thread or the one that commits.
    pub(super) fn fsync(&mut self) -> Outcome {
        let ino = self.ino()?;
        let fsync: FsyncIn = self.body.take()?;
        AdapterCounters::add(&self.adapter.counters.fsyncs, 1);
        let (reply, header) = (&self.reply, self.header);
        let counters = &self.adapter.counters;
        let leave = || {
            let answerer = reply.hand_over(header.unique)?;
            let counters = counters.clone();
            let when: WhenDurable = Box::new(move |durable| {
                let failed =
                    |error: JournalError| counters.failed(Opcode::Fsync, &header, &error.into());
                answerer.answer(durable.map_err(failed));
            });
            Some(when)
        };
        let data_only = fsync.fsync_flags & FSYNC_FDATASYNC != 0;
        match self.volume.fsync_or_leave(ino, data_only, leave)? {
            Synced::Durable => Ok(()),
            Synced::Left => Err(Failure::HandedOver),
        }
    }

    /// SYNCFS. The volume promises nothing about data that the kernel has not sent.
    pub(super) fn syncfs(&mut self) -> Outcome {
        let counters = &self.adapter.counters;
        let written = match &self.adapter.page_writer {
            Some(writer) => {
                let writes = || counters.app_writes.load(Ordering::Relaxed);
                self.wait_for_requests(|| writer.write_back(self.header.pid, &writes))?
            }
            None => Ok(()),
        };
        AdapterCounters::add(&counters.syncfs, 1);
        self.volume.sync()?;
        written.map_err(|error| {
            tracing::error!("sync: {error}");
            *counters.last_error.lock() = Some(error.to_string());
            Errno::IO.into()
        })
    }

    pub(super) fn fallocate(&mut self) -> Outcome {
        let ino = self.ino()?;
        let fallocate: FallocateIn = self.body.take()?;
        const PUNCH: u32 = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        const ZERO_AND_KEEP: u32 = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
        let how = match fallocate.mode {
            0 => Allocate::Extend,
            FALLOC_KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::PunchHole,
            FALLOC_ZERO_RANGE => Allocate::ZeroRange { keep_size: false },
            ZERO_AND_KEEP => Allocate::ZeroRange { keep_size: true },
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        let _no_atomic = self.without_atomic_write(ino)?;
        self.drop_privileges(ino, false)?;
        self.drop_ids_unless_capable(ino)?;
        let _arrival = self.arrival(ino)?;
        Ok(self.volume.fallocate(ino, how, fallocate.offset, fallocate.length)?)
    }

    pub(super) fn lseek(&mut self) -> Outcome {
        let ino = self.ino()?;
        let lseek: LseekIn = self.body.take()?;
        let to = match lseek.whence {
            SEEK_DATA => SeekTo::Data,
            SEEK_HOLE => SeekTo::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        if self.adapter.order() == Order::Sync {
            // The kernel asks without writing back before.
            self.drop_pages(ino, (0, 0))?;
        }
        let held_size = self.adapter.atomic.as_ref().and_then(|atomic| atomic.size(ino));
        let offset = match (held_size, to) {
            // Data that are not committed have no blocks yet.
            (Some(size), _) if lseek.offset >= size => return Err(Errno::NXIO.into()),
            (Some(_), SeekTo::Data) => lseek.offset,
            (Some(size), SeekTo::Hole) => size,
            (None, to) => self.volume.seek(ino, lseek.offset, to)?,
        };
        Ok(self.reply.push(&LseekOut { offset })?)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ext4::{DataMode, InodeNo};
    use fuse::Answer;
    use fuse::abi::WriteIn;
    use zerocopy::IntoBytes;

    use crate::PageWriter;
    use crate::adapter::harness::{adapter, full, serve};

    const SYNCFS: u32 = 50;

    /// Fails the first time.
    #[derive(Debug, Default)]
    struct FailsOnce(AtomicU32);

    impl PageWriter for FailsOnce {
        fn write_back(&self, _sender: u32, _writes: &dyn Fn() -> u64) -> io::Result<()> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn a_sync_of_pages_that_may_not_have_come_fails() {
        let mut adapter = adapter(DataMode::Journal);
        adapter.write_pages_by(Arc::new(FailsOnce::default()));
        let answers = [(); 2].map(|()| serve(&adapter, SYNCFS, InodeNo::ROOT, &[0; 8]));
        assert_eq!(answers, [Answer::Failed(rustix::io::Errno::IO), Answer::Done]);
        adapter.close().unwrap();
    }

    /// It is served again, or never.
    #[test]
    fn a_sync_that_could_not_begin_is_not_counted() {
        let mut adapter = adapter(DataMode::Journal);
        adapter.write_pages_by(Arc::new(FailsOnce::default()));
        adapter.flushes.end();
        let answer = serve(&adapter, SYNCFS, InodeNo::ROOT, &[0; 8]);
        assert_eq!(answer, Answer::Failed(rustix::io::Errno::BUSY));
        assert_eq!(adapter.counters.syncfs.load(Ordering::Relaxed), 0);
        adapter.close().unwrap();
    }

    /// The kernel takes an answer about pages that it writes back for success, however much was
    /// written.
    #[test]
    fn regression_pages_that_find_no_space_are_an_error() {
        let adapter = adapter(DataMode::Journal);
        let (new, rest) = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let (old, new, size_bytes) = full(volume);
            let size_bytes = Some(size_bytes.saturating_sub(5 * 4096));
            let cut = ext4::SetAttr { size_bytes, ..Default::default() };
            volume.as_root().set_attr(old, &cut).unwrap();
            volume.sync().unwrap();
            (new, vec![8; 1 << 16])
        };
        let request = |write_flags| {
            let write = WriteIn { size: 1 << 16, write_flags, ..WriteIn::default() };
            [write.as_bytes(), &rest].concat()
        };
        let no_space = Answer::Failed(rustix::io::Errno::NOSPC);
        assert_eq!(serve(&adapter, 16, new, &request(fuse::abi::WRITE_CACHE)), no_space);
        assert_eq!(serve(&adapter, 16, new, &request(0)), Answer::Done, "a short write is one");
        adapter.close().unwrap();
    }
}
