//! The media of a simulated machine. A process may die before each access, and in the middle of a
//! store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{BlockDevice, Durability, FileStore, MappedNvram, Nvram, Result, StoredFile};
use fault::crash;
use onejournal_testing::{SimDevice, SimNvram};

use crate::format::group::ENTRIES_AT;

/// A promise that the machine breaks. The checks of crash states must find each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// Syncs of the stored head do nothing.
    HeadNotSynced,
    /// Syncs of the quarantine do nothing.
    QuarantineNotSynced,
    /// The names of a stream's files are made durable only for the process that changed one.
    FoundNamesNotSynced,
    /// A stream that a process finds is not made durable for it.
    FoundStreamNotKept,
    /// The limit of USNs is not stored.
    UsnLimitNotKept,
    /// An entry of the group log is only in its device's cache.
    GroupEntriesCached,
    /// Memory of a chunk that is to be persisted is not fenced.
    FencesIgnored,
}

impl Lie {
    /// Whether syncs of the file with this name do nothing.
    fn ignores_sync_of(name: &str) -> bool {
        match name {
            "head" => fault::is(Lie::HeadNotSynced),
            "quarantine" => fault::is(Lie::QuarantineNotSynced),
            _ => false,
        }
    }
}

/// Stores `data`. If the process dies in the middle, only the first half is stored.
fn store_or_crash(data: &[u8], store: impl Fn(&[u8]) -> Result<()>) -> Result<()> {
    if crash::crashes_here() {
        // The process dies here, so it cannot see an error.
        let _ = store(&data[..data.len() / 2]);
        crash::crash();
    }
    store(data)
}

/// A directory.
pub(super) struct Directory<S> {
    store: S,
    /// Whether it makes names durable in spite of [`Lie::FoundNamesNotSynced`].
    syncs_names: AtomicBool,
}

impl<S: FileStore> Directory<S> {
    pub(super) fn new(store: S) -> Directory<S> {
        Directory { store, syncs_names: AtomicBool::new(true) }
    }

    pub(super) fn of_stream(store: S) -> Directory<S> {
        Directory { store, syncs_names: AtomicBool::new(false) }
    }

    fn change<T>(&self, change: impl FnOnce(&S) -> Result<T>) -> Result<T> {
        crash::crash_point();
        self.syncs_names.store(true, Ordering::Relaxed);
        let changed = change(&self.store)?;
        crash::crash_point();
        Ok(changed)
    }
}

impl<S: FileStore> FileStore for Directory<S> {
    fn names(&self) -> Result<Vec<String>> {
        self.store.names()
    }

    fn create(&self, name: &str, len_bytes: u64) -> Result<Box<dyn StoredFile>> {
        let file = self.change(|store| store.create(name, len_bytes))?;
        Ok(Box::new(File { name: name.to_owned(), file }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn StoredFile>> {
        Ok(Box::new(File { name: name.to_owned(), file: self.store.open(name)? }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.change(|store| store.remove(name))
    }

    fn sync_names(&self) -> Result<()> {
        crash::crash_point();
        if fault::is(Lie::FoundNamesNotSynced) && !self.syncs_names.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.store.sync_names()
    }
}

struct File {
    name: String,
    file: Box<dyn StoredFile>,
}

impl StoredFile for File {
    fn len_bytes(&self) -> Result<u64> {
        self.file.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        crash::crash_point();
        self.file.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        crash::crash_point();
        if Lie::ignores_sync_of(&self.name) { Ok(()) } else { self.file.sync() }
    }
}

/// The group log's device.
pub(super) struct Disk(pub(super) SimDevice);

impl BlockDevice for Disk {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn sector_bytes(&self) -> usize {
        self.0.sector_bytes()
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        crash::crash_point();
        self.0.write(offset, data)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        crash::crash_point();
        match offset >= ENTRIES_AT && fault::is(Lie::GroupEntriesCached) {
            true => self.0.write(offset, data)?,
            false => self.0.write_durable(offset, data)?,
        }
        crash::crash_point();
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        crash::crash_point();
        self.0.flush()
    }
}

/// Where a chunk's bytes are.
enum Bytes {
    /// A part of the NVRAM. A fence takes effect on all of the NVRAM, as on a real machine.
    Part {
        all: Arc<SimNvram>,
        begin: u64,
    },
    Own(MappedNvram),
}

/// The file of a chunk, until it is replaced by another one.
pub(super) struct ChunkFile {
    bytes: Bytes,
    len_bytes: u64,
    /// It was cut to length 0. A process that still maps it stores nowhere.
    is_cut: AtomicBool,
}

impl ChunkFile {
    pub(super) fn on_nvram(all: Arc<SimNvram>, begin: u64, len_bytes: u64) -> ChunkFile {
        ChunkFile { bytes: Bytes::Part { all, begin }, len_bytes, is_cut: AtomicBool::new(false) }
    }

    pub(super) fn in_memory(len_bytes: u64) -> ChunkFile {
        let own = MappedNvram::in_memory(usize::try_from(len_bytes).expect("small"));
        let bytes = Bytes::Own(own.expect("memory"));
        ChunkFile { bytes, len_bytes, is_cut: AtomicBool::new(false) }
    }

    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// The medium, and where on it `offset` is; `None`: the file was cut.
    fn at(&self, offset: u64, len_bytes: usize) -> Option<(&dyn Nvram, u64)> {
        assert!(offset + len_bytes as u64 <= self.len_bytes, "outside of the chunk");
        (!self.is_cut.load(Ordering::Acquire)).then_some(match &self.bytes {
            Bytes::Part { all, begin } => (&**all, begin + offset),
            Bytes::Own(own) => (own, offset),
        })
    }
}

impl Nvram for ChunkFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn durability(&self) -> Durability {
        match &self.bytes {
            Bytes::Part { all, .. } => all.durability(),
            Bytes::Own(own) => own.durability(),
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.at(offset, buf.len()) {
            Some((medium, at)) => medium.read(at, buf),
            None => {
                buf.fill(0);
                Ok(())
            }
        }
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        let Some((medium, at)) = self.at(offset, data.len()) else { return Ok(()) };
        store_or_crash(data, |data| medium.store(at, data))
    }

    fn persist(&self) -> Result<()> {
        crash::crash_point();
        if fault::is(Lie::FencesIgnored) {
            return Ok(());
        }
        match &self.bytes {
            Bytes::Part { all, .. } => all.persist(),
            Bytes::Own(own) => own.persist(),
        }
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let len_bytes = pieces.iter().map(|piece| piece.len()).sum();
        let Some((medium, at)) = self.at(offset, len_bytes) else { return Ok(()) };
        if crash::crashes_here() {
            let all = pieces.concat();
            let _ = medium.store(at, &all[..all.len() / 2]);
            crash::crash();
        }
        medium.write_durable(at, pieces)?;
        crash::crash_point();
        Ok(())
    }
}
