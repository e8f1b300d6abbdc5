//! Atomic writes: the writes of an open file become durable all at once, or none does.
//!
//! Between START and COMMIT the writes of the *holder* (one open file) are kept in an [`Overlay`]
//! in memory. All programs read them, as the kernel's page cache would show them anyway. No other
//! program may change the content meanwhile (`EBUSY`). COMMIT writes all of them in one transaction
//! and waits until that is durable. ABORT, the closing of a descriptor of the holder, and the end
//! of its process drop them, and then the kernel's pages of them. A holder may lose its atomic
//! write by a close that it does not know of (a child's). It then gets `ECANCELED` until it asks
//! for ABORT, COMMIT or START: its next write must not go to the file as if nothing had happened.
//!
//! Locks: `table` (shared: to change content, or to look a file up; exclusive: to enter or take
//! out), then that of one overlay, then those of the volume. No thread that holds one waits for
//! pages to be dropped. A thread that waits for that answers no requests, and the kernel may need
//! an answer first (to a read of such a page). So fewer files may be in the atomic state than
//! threads serve any queue of requests. A file leaves the table only when its pages are gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use device::sync::{RwLock, RwLockReadGuard};
use ext4::{FileKind, InodeNo, Volume, VolumeAs};
use fuse::abi::{WRITE_CACHE, WriteIn};
use fuse::{Dropping, Notifier};
use host::Account;
use rustix::io::Errno;

use crate::adapter::atomic::overlay::Overlay;
use crate::adapter::atomic::shares::Shares;
use crate::adapter::failure::Failure;
use crate::adapter::forgets::Forgets;
use crate::convert::node_of;
use crate::errno::{errno, is_grave};
use crate::stat::AdapterCounters;

/// All overlays together hold at most so many times what one may. Users share it.
const TOTAL_FACTOR: usize = 4;
/// `FS_IMMUTABLE_FL | FS_APPEND_FL`.
const FIXED_FLAGS: u32 = 0x10 | 0x20;

/// A file in the atomic state.
pub(in crate::adapter) struct AtomicFile {
    ino: InodeNo,
    /// The open file whose writes it takes.
    holder: u64,
    /// The user who began it.
    user: Account,
    /// `None` once it has ended.
    overlay: RwLock<Option<Overlay>>,
}

#[derive(Default)]
pub(in crate::adapter) struct Table {
    files: HashMap<InodeNo, Arc<AtomicFile>>,
    /// Holders that do not know yet that their atomic write was dropped.
    lost: HashSet<u64>,
    /// Files whose atomic write was dropped, and where the kernel takes them to end since.
    stale_ends: HashMap<InodeNo, u64>,
}

impl Table {
    /// A write at the end of the file that begins here may be meant for where the file really ends.
    pub(in crate::adapter) fn is_stale_end(&self, ino: InodeNo, offset: u64) -> bool {
        self.stale_ends.get(&ino) == Some(&offset)
    }
}

/// Where a write goes.
pub(in crate::adapter) enum Route<'a> {
    /// Into the overlay.
    Overlay(Arc<AtomicFile>),
    /// To the volume. No atomic write can begin until this is dropped.
    Volume(RwLockReadGuard<'a, Table>),
}

/// The atomic writes of a mount.
pub(crate) struct AtomicWrites {
    table: RwLock<Table>,
    /// Entries of `table`. While it is 0, requests need not look.
    entry_count: AtomicUsize,
    stale_count: AtomicUsize,
    /// Blocks in all overlays.
    blocks: Shares,
    /// The most blocks in one overlay.
    block_limit: usize,
    /// Files in the atomic state.
    files: Shares,
    next_handle: AtomicU64,
    notifier: Arc<Notifier>,
}

impl AtomicWrites {
    pub(crate) fn new(volume: &Volume, notifier: Arc<Notifier>, file_limit: usize) -> AtomicWrites {
        let block_limit = volume.atomic_block_limit();
        AtomicWrites {
            table: RwLock::default(),
            entry_count: AtomicUsize::new(0),
            stale_count: AtomicUsize::new(0),
            blocks: Shares::new(TOTAL_FACTOR * block_limit),
            block_limit,
            files: Shares::new(file_limit),
            next_handle: AtomicU64::new(1),
            notifier,
        }
    }

    /// A number for an open file; it says whether it may write.
    pub(in crate::adapter) fn new_handle(&self, is_writable: bool) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed) << 1 | u64::from(is_writable)
    }

    fn change_table<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.write();
        let result = change(&mut table);
        self.entry_count.store(table.files.len() + table.lost.len(), Ordering::SeqCst);
        self.stale_count.store(table.stale_ends.len(), Ordering::SeqCst);
        result
    }

    fn is_idle(&self) -> bool {
        self.entry_count.load(Ordering::SeqCst) == 0
    }

    fn file(&self, ino: InodeNo) -> Option<Arc<AtomicFile>> {
        if self.is_idle() { None } else { self.table.read().files.get(&ino).cloned() }
    }

    /// The file in the atomic state whose holder this is.
    fn held(&self, ino: InodeNo, handle: u64) -> Option<Arc<AtomicFile>> {
        self.file(ino).filter(|file| file.holder == handle)
    }

    /// START by a user on one of its open files. Once more is no error. `ENFILE`: the user has as
    /// many files in the atomic state as one user may.
    pub(in crate::adapter) fn start(
        &self,
        volume: &Volume,
        ino: InodeNo,
        (handle, user): (u64, Account),
    ) -> Result<(), Failure> {
        if handle & 1 == 0 {
            return Err(Errno::BADF.into());
        }
        // Waits for the requests that are changing the content.
        self.change_table(|table| {
            let attr = volume.get_attr(ino)?;
            match table.files.get(&ino) {
                _ if attr.kind != FileKind::Regular => return Err(Errno::INVAL.into()),
                _ if attr.flags & FIXED_FLAGS != 0 => return Err(Errno::PERM.into()),
                _ if volume.is_read_only() => return Err(Errno::ROFS.into()),
                // Without an overlay, the file is about to leave the table.
                Some(file) if file.holder == handle && file.overlay.read().is_some() => {
                    return Ok(());
                }
                Some(_) => return Err(Errno::BUSY.into()),
                None => {}
            }
            if !self.files.take(user, 1) {
                return Err(Errno::NFILE.into());
            }
            table.lost.remove(&handle);
            let overlay = RwLock::new(Some(Overlay::new(attr.size_bytes)));
            table.files.insert(ino, Arc::new(AtomicFile { ino, holder: handle, user, overlay }));
            Ok(())
        })
    }

    /// Where this WRITE goes.
    pub(in crate::adapter) fn route(
        &self,
        ino: InodeNo,
        write: &WriteIn,
    ) -> Result<Route<'_>, Errno> {
        let table = self.table.read();
        // The kernel does not know which open file has changed a page through a mapping.
        let is_known = write.write_flags & WRITE_CACHE == 0;
        if is_known && table.lost.contains(&write.fh) {
            return Err(Errno::CANCELED);
        }
        match table.files.get(&ino) {
            Some(file) if file.holder == write.fh && is_known => Ok(Route::Overlay(file.clone())),
            Some(_) => Err(Errno::BUSY),
            None => Ok(Route::Volume(table)),
        }
    }

    /// The size of a file in the atomic state, as everybody sees it.
    pub(in crate::adapter) fn size(&self, ino: InodeNo) -> Option<u64> {
        self.file(ino)?.overlay.read().as_ref().map(Overlay::size)
    }

    /// Takes a write of the holder in. More than a transaction can hold, or than the user may have
    /// in memory, is `EFBIG`: from `ENOSPC` SQLite would conclude that its rollback journal finds
    /// no room either.
    pub(in crate::adapter) fn write(
        &self,
        volume: &Volume,
        file: &AtomicFile,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        let mut overlay = file.overlay.write();
        let overlay = overlay.as_mut().ok_or(Errno::CANCELED)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::FBIG.into());
        }
        let added_count = overlay.added_count(offset, data.len());
        if overlay.block_count() + added_count > self.block_limit {
            return Err(Errno::FBIG.into());
        }
        if !self.blocks.take(file.user, added_count) {
            return Err(Errno::FBIG.into());
        }
        let written = overlay.write(volume, file.ino, offset, data);
        if written.is_err() {
            self.blocks.give_back(file.user, added_count);
        }
        written
    }

    /// [`Volume::read_noting`] with what the holder has written.
    pub(in crate::adapter) fn read(
        &self,
        volume: &Volume,
        ino: InodeNo,
        offset: u64,
        out: &mut [u8],
        notes_access: bool,
    ) -> ext4::Result<usize> {
        if let Some(file) = self.file(ino) {
            // Held until the answer is complete: half of it from before a commit, half from after
            // would be kept in the kernel's cache for ever.
            let overlay = file.overlay.read();
            if let Some(overlay) = &*overlay {
                return overlay.read(volume, ino, offset, out);
            }
        }
        volume.read_noting(ino, offset, out, notes_access)
    }

    /// COMMIT: durable when it returns. A failure aborts.
    pub(in crate::adapter) fn commit(
        &self,
        volume: VolumeAs<&Volume>,
        ino: InodeNo,
        handle: u64,
        (counters, forgets): (&AdapterCounters, &Forgets),
    ) -> Result<(), Errno> {
        if self.forgive(handle) {
            return Err(Errno::CANCELED);
        }
        let file = self.held(ino, handle).ok_or(Errno::INVAL)?;
        let mut guard = file.overlay.write();
        let overlay = guard.take().ok_or(Errno::INVAL)?;
        let owned = overlay.pieces();
        let pieces: Vec<_> = owned.iter().map(|(offset, data)| (*offset, &data[..])).collect();
        let is_no_space = |error: &ext4::Error| matches!(error, ext4::Error::NoSpace);
        let written =
            forgets.with_space(&volume, is_no_space, || volume.write_atomic(ino, &pieces));
        drop(guard);
        if written.is_err() {
            self.drop_pages(ino, &overlay).wait();
            self.note_stale_end(ino, &overlay);
        }
        self.take_out(&file, &overlay);
        let result = written.and_then(|()| volume.fsync(ino, true));
        let counter =
            if result.is_ok() { &counters.atomic_commits } else { &counters.atomic_aborts };
        AdapterCounters::add(counter, 1);
        result.map_err(|error| {
            if is_grave(&error) {
                tracing::error!(%ino, %error, "committing an atomic write");
                counters.note_error(&error);
            }
            errno(&error)
        })
    }

    /// ABORT, and the end of the open file; nothing to do where there is no atomic write.
    pub(in crate::adapter) fn abort(&self, ino: InodeNo, handle: u64, counters: &AdapterCounters) {
        self.forgive(handle);
        self.end(ino, handle, false, counters);
    }

    /// Aborts without the holder's knowledge.
    pub(in crate::adapter) fn lose(&self, ino: InodeNo, handle: u64, counters: &AdapterCounters) {
        self.end(ino, handle, true, counters);
    }

    fn end(&self, ino: InodeNo, handle: u64, is_lost: bool, counters: &AdapterCounters) {
        let Some(file) = self.held(ino, handle) else { return };
        if is_lost {
            self.change_table(|table| table.lost.insert(handle));
        }
        let Some(overlay) = file.overlay.write().take() else { return };
        AdapterCounters::add(&counters.atomic_aborts, 1);
        // No program may write before the pages are gone: until then, reads may return the aborted
        // data.
        self.drop_pages(ino, &overlay).wait();
        self.note_stale_end(ino, &overlay);
        self.take_out(&file, &overlay);
    }

    /// The kernel keeps the size of what was dropped until it asks for attributes, and appends
    /// there.
    fn note_stale_end(&self, ino: InodeNo, overlay: &Overlay) {
        if let Some(end) = overlay.new_end() {
            self.change_table(|table| table.stale_ends.insert(ino, end));
        }
    }

    /// An append that the kernel put at a stale end went elsewhere; the kernel now takes the file
    /// to end here.
    pub(in crate::adapter) fn move_stale_end(&self, ino: InodeNo, end: u64) {
        self.change_table(|table| table.stale_ends.insert(ino, end));
    }

    /// The kernel does not know the file any more.
    pub(in crate::adapter) fn forget(&self, ino: InodeNo) {
        if self.stale_count.load(Ordering::SeqCst) > 0 {
            self.change_table(|table| table.stale_ends.remove(&ino));
        }
    }

    /// The holder knows now. `true`: there was something to know.
    fn forgive(&self, handle: u64) -> bool {
        if self.is_idle() {
            return false;
        }
        let is_lost = self.table.read().lost.contains(&handle);
        is_lost && self.change_table(|table| table.lost.remove(&handle))
    }

    /// Until the result is dropped, the file has no atomic write. `EBUSY`: it has one.
    pub(in crate::adapter) fn without_atomic_write(
        &self,
        ino: InodeNo,
    ) -> Result<RwLockReadGuard<'_, Table>, Errno> {
        let table = self.table.read();
        if table.files.contains_key(&ino) { Err(Errno::BUSY) } else { Ok(table) }
    }

    fn take_out(&self, file: &AtomicFile, overlay: &Overlay) {
        self.blocks.give_back(file.user, overlay.block_count());
        self.change_table(|table| table.files.remove(&file.ino));
        self.files.give_back(file.user, 1);
    }

    fn drop_pages(&self, ino: InodeNo, overlay: &Overlay) -> Dropping {
        self.notifier.drop_pages(node_of(ino), overlay.ranges())
    }
}

/// Whether files had atomic writes when a request for attributes began: then the sizes of files are
/// those with the writes that are held.
pub(in crate::adapter) struct AtomicSizes<'a>(Option<&'a AtomicWrites>);

impl<'a> AtomicSizes<'a> {
    /// To be asked for before attributes are read.
    pub(in crate::adapter) fn of(atomic: Option<&'a AtomicWrites>) -> AtomicSizes<'a> {
        AtomicSizes(atomic.filter(|atomic| !atomic.is_idle()))
    }

    pub(in crate::adapter) fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// Size and validity of attributes to be told, where there are atomic writes: a commit may have
    /// overtaken the request, so that the kernel has to ask again.
    pub(in crate::adapter) fn correct(
        &self,
        ino: InodeNo,
        size: &mut u64,
        valid_seconds: &mut u64,
    ) {
        let Some(atomic) = self.0 else { return };
        *valid_seconds = 0;
        if let Some(file) = atomic.file(ino)
            && let Some(overlay) = &*file.overlay.read()
        {
            *size = overlay.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use ext4::{DataMode, Owner};

    use super::*;
    use crate::adapter::harness::{adapter, make};

    const FILE_COUNT: usize = 9;
    const FILE_LIMIT: usize = 14;

    /// Two users who are neither root nor this one.
    fn users() -> [Account; 2] {
        let own = rustix::process::geteuid().as_raw();
        [own + 1, own + 2].map(Account::of)
    }

    /// A file of a volume, and a handle for writing it.
    type File = (InodeNo, u64);

    /// Runs with a volume, and with atomic writes for files of it.
    fn with_files(test: impl FnOnce(&Volume, &AtomicWrites, [File; FILE_COUNT])) {
        let adapter = adapter(DataMode::Journal);
        {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let notifier = Arc::new(Notifier::start(|_| {}).unwrap());
            let atomic = AtomicWrites::new(volume, notifier, FILE_LIMIT);
            let files = std::array::from_fn(|index| {
                let ino = make(volume, format!("f{index}").as_bytes(), Owner::default());
                (ino, atomic.new_handle(true))
            });
            test(volume, &atomic, files);
        }
        adapter.close().unwrap();
    }

    #[test]
    fn regression_one_user_leaves_files_for_the_next() {
        with_files(|volume, atomic, files| {
            let [greedy, other] = users();
            let start = |(ino, handle): File, user| {
                let started = atomic.start(volume, ino, (handle, user));
                started.map_err(|failure| match failure {
                    Failure::Errno(errno) => errno,
                    _ => panic!("another failure"),
                })
            };
            let (own, more) = files.split_at(FILE_LIMIT / 2);
            own.iter().for_each(|file| assert_eq!(start(*file, greedy), Ok(())));
            assert_eq!(start(more[0], greedy), Err(Errno::NFILE));
            more.iter().for_each(|file| assert_eq!(start(*file, other), Ok(())));
            // A file that ends makes room for its user.
            more.iter().chain(&own[..1]).for_each(|(ino, handle)| {
                atomic.abort(*ino, *handle, &AdapterCounters::default());
            });
            assert_eq!(start(more[0], greedy), Ok(()));
            assert_eq!(start(more[1], greedy), Err(Errno::NFILE));
        });
    }

    #[test]
    fn regression_one_user_leaves_memory_for_the_next() {
        with_files(|volume, atomic, files| {
            let [greedy, other] = users();
            let limit = atomic.block_limit;
            let filled = |(ino, handle): File, user| {
                assert!(atomic.start(volume, ino, (handle, user)).is_ok());
                let file = atomic.file(ino).unwrap();
                let write = |at: usize| atomic.write(volume, &file, at as u64 * 4096, &[1; 4096]);
                (0..).take_while(|at| write(*at).is_ok()).count()
            };
            let [a, b, c, d, e, f, ..] = files;
            assert_eq!([a, b, c, d].map(|file| filled(file, greedy)), [limit, limit, 0, 0]);
            assert_eq!(filled(e, other), limit);
            for (ino, handle) in [a, b, c, d, e] {
                atomic.abort(ino, handle, &AdapterCounters::default());
            }
            assert_eq!(filled(f, greedy), limit);
        });
    }
}
