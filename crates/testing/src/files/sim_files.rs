//! Simulated files, for cutting the power at every event.
//!
//! Used like [`SimDevice`]. Each file is such a device with sectors of 512 bytes. Changes of names
//! and lengths are traced beside the files. Everything follows the list at the head of `files`. One
//! [`SimFiles`] may have several directories ([`SimFiles::directory`]). They form one file system
//! with one clock and one capacity.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use device::sync::Mutex;
use device::{BlockDevice, DeviceError, FileStore, Operation, Result, StoredFile};

use super::trace::{Change, FilesImage, FilesTrace, in_directory};
use crate::block::SimDevice;
use crate::power_cut::{Fault, Faults, Image, SimClock};

/// A write may be torn at multiples of this many bytes.
pub(super) const SECTOR_BYTES: usize = 512;

/// A file system that loses in a power cut everything that a real one may lose.
#[derive(Clone)]
pub struct SimFiles {
    state: Arc<Mutex<FilesState>>,
}

struct FilesState {
    names: BTreeMap<String, usize>,
    files: Vec<Arc<FileState>>,
    clock: SimClock,
    trace: Option<FilesTrace>,
    faults: Faults,
    file_bytes_max: u64,
}

struct FileState {
    device: SimDevice,
    len_bytes: Mutex<u64>,
}

impl SimFiles {
    /// An empty file system. No file can become longer than `file_bytes_max`.
    pub fn new(file_bytes_max: u64, clock: &SimClock) -> SimFiles {
        let file_bytes_max = file_bytes_max.next_multiple_of(SECTOR_BYTES as u64);
        Self::from_image(FilesImage { files: BTreeMap::new(), file_bytes_max }, clock)
    }

    /// The files of `image`, all of them durable.
    pub fn from_image(image: FilesImage, clock: &SimClock) -> SimFiles {
        let mut state = FilesState {
            names: BTreeMap::new(),
            files: Vec::new(),
            clock: clock.clone(),
            trace: None,
            faults: Faults::default(),
            file_bytes_max: image.file_bytes_max,
        };
        for (name, (bytes, len_bytes)) in image.files {
            state.names.insert(name, state.files.len());
            let device = SimDevice::from_image(bytes, SECTOR_BYTES).with_clock(clock);
            state.files.push(Arc::new(FileState { device, len_bytes: Mutex::new(len_bytes) }));
        }
        SimFiles { state: Arc::new(Mutex::new(state)) }
    }

    /// The directory with this name, which always exists.
    pub fn directory(&self, name: &str) -> SimDirectory {
        SimDirectory { files: self.clone(), prefix: format!("{name}/") }
    }

    /// Drops the present trace, if there is one, and begins a new one. The present content counts
    /// as durable, so call it on files that were made from an image, before anything else.
    pub fn start_trace(&self) {
        let mut state = self.state.lock();
        state.files.iter().for_each(|file| file.device.start_trace());
        let lengths = state.files.iter().map(|file| *file.len_bytes.lock()).collect();
        state.trace = Some(FilesTrace::new(state.names.clone(), lengths, state.file_bytes_max));
    }

    /// Ends the trace and returns it. Panics if none was started.
    pub fn take_trace(&self) -> FilesTrace {
        let mut state = self.state.lock();
        let mut trace = state.trace.take().expect("a trace was started");
        trace.files = state.files.iter().map(|file| file.device.take_trace()).collect();
        trace
    }

    /// Makes an operation fail with EIO: a write, a read, or a flush (of a file or of names).
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Removes all faults, and the limit of the capacity.
    pub fn clear_faults(&self) {
        self.state.lock().faults = Faults::default();
    }

    /// Limits the space for all files together.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.state.lock().faults.capacity_bytes = capacity_bytes;
    }

    /// Bytes that are reserved for all files.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset` of the file `name` (with its directory).
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let state = self.state.lock();
        state.files[state.names[name]].device.flip_bit(offset, bit);
    }
}

impl FilesState {
    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&file| *self.files[file].len_bytes.lock()).sum()
    }

    fn record(&mut self, change: Change) {
        if let Some(trace) = &mut self.trace {
            trace.changes.push(change);
            trace.times.push(self.clock.tick());
        }
    }

    fn check_room(&self, operation: Operation, more_bytes: u64) -> Result<()> {
        match self.used_bytes() + more_bytes > self.faults.capacity_bytes {
            true => Err(failed(operation, ErrorKind::StorageFull)),
            false => Ok(()),
        }
    }
}

fn failed(operation: Operation, kind: ErrorKind) -> DeviceError {
    DeviceError::new(operation, 0, 0, io::Error::from(kind))
}

/// One directory of simulated files.
pub struct SimDirectory {
    files: SimFiles,
    prefix: String,
}

impl SimDirectory {
    fn at(&self, name: &str) -> String {
        assert!(!name.contains('/'), "a name, not a path: {name}");
        format!("{}{name}", self.prefix)
    }

    fn opened(&self, index: usize, file: Arc<FileState>) -> Box<dyn StoredFile> {
        Box::new(SimFile { files: self.files.clone(), index, file })
    }
}

impl FileStore for SimDirectory {
    fn names(&self) -> Result<Vec<String>> {
        let state = self.files.state.lock();
        let names = state.names.keys().filter(|name| in_directory(name, &self.prefix));
        Ok(names.map(|name| name[self.prefix.len()..].to_owned()).collect())
    }

    fn create(&self, name: &str, len_bytes: u64) -> Result<Box<dyn StoredFile>> {
        let name = self.at(name);
        let mut state = self.files.state.lock();
        if state.names.contains_key(&name) {
            return Err(failed(Operation::Open, ErrorKind::AlreadyExists));
        }
        assert!(len_bytes <= state.file_bytes_max, "a file of {len_bytes} bytes");
        state.check_room(Operation::Open, len_bytes)?;
        let device = SimDevice::from_image(Image::zeroed(state.file_bytes_max), SECTOR_BYTES)
            .with_clock(&state.clock);
        if state.trace.is_some() {
            device.start_trace();
        }
        let index = state.files.len();
        let file = Arc::new(FileState { device, len_bytes: Mutex::new(len_bytes) });
        state.files.push(file.clone());
        state.names.insert(name.clone(), index);
        state.record(Change::Create { name, file: index });
        state.record(Change::Length { file: index, len_bytes });
        Ok(self.opened(index, file))
    }

    fn open(&self, name: &str) -> Result<Box<dyn StoredFile>> {
        let state = self.files.state.lock();
        match state.names.get(&self.at(name)) {
            Some(&index) => Ok(self.opened(index, state.files[index].clone())),
            None => Err(failed(Operation::Open, ErrorKind::NotFound)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        let name = self.at(name);
        let mut state = self.files.state.lock();
        if state.names.remove(&name).is_none() {
            return Err(failed(Operation::Open, ErrorKind::NotFound));
        }
        state.record(Change::Remove { name });
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        let mut state = self.files.state.lock();
        if state.faults.strike(Operation::Flush) {
            return Err(failed(Operation::Flush, ErrorKind::Other));
        }
        state.record(Change::SyncNames { prefix: self.prefix.clone() });
        Ok(())
    }
}

struct SimFile {
    files: SimFiles,
    index: usize,
    file: Arc<FileState>,
}

impl SimFile {
    /// Makes the device below fail, if a fault is due.
    fn strike(&self, operation: Operation) {
        if self.files.state.lock().faults.strike(operation) {
            self.file.device.inject(Fault { operation, skip_count: 0, forever: false });
        }
    }

    fn grow(&self, len_bytes: u64) -> Result<()> {
        let mut state = self.files.state.lock();
        let before = *self.file.len_bytes.lock();
        if len_bytes <= before {
            return Ok(());
        }
        state.check_room(Operation::Write, len_bytes - before)?;
        *self.file.len_bytes.lock() = len_bytes;
        state.record(Change::Length { file: self.index, len_bytes });
        Ok(())
    }
}

impl StoredFile for SimFile {
    fn len_bytes(&self) -> Result<u64> {
        Ok(*self.file.len_bytes.lock())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.strike(Operation::Read);
        let len_bytes = *self.file.len_bytes.lock();
        if offset + buf.len() as u64 > len_bytes {
            return Err(failed(Operation::Read, ErrorKind::UnexpectedEof));
        }
        let (start, mut sectors, at) = around(offset, buf.len());
        self.file.device.read(start, &mut sectors)?;
        buf.copy_from_slice(&sectors[at..at + buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.grow(offset + data.len() as u64)?;
        let (start, mut sectors, at) = around(offset, data.len());
        self.file.device.read(start, &mut sectors)?;
        sectors[at..at + data.len()].copy_from_slice(data);
        self.strike(Operation::Write);
        self.file.device.write(start, &sectors)
    }

    fn sync(&self) -> Result<()> {
        self.strike(Operation::Flush);
        self.file.device.flush()?;
        self.files.state.lock().record(Change::SyncLength { file: self.index });
        Ok(())
    }
}

/// The sectors around a span: their offset, a buffer for them, and the place of the span in it.
fn around(offset: u64, len_bytes: usize) -> (u64, Vec<u8>, usize) {
    let start = offset / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
    let at = usize::try_from(offset - start).expect("within a sector");
    (start, vec![0; (at + len_bytes).next_multiple_of(SECTOR_BYTES)], at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Survival;

    #[test]
    fn unsynced_bytes_lengths_and_names_are_lost_or_kept_synced_ones_kept() {
        let clock = SimClock::default();
        let files = SimFiles::new(8192, &clock);
        files.start_trace();
        let directory = files.directory("d");
        let a = directory.create("a", 1024).expect("create");
        a.write(100, b"one").expect("write");
        a.sync().expect("sync");
        directory.sync_names().expect("sync");
        a.write(1500, b"two").expect("beyond the end");
        directory.create("b", 10).expect("create");
        files.directory("other").sync_names().expect("sync of other names");
        let trace = files.take_trace();
        let mut cursor = trace.cursor();
        cursor.advance_to_moment(u64::MAX);
        let look = |survival| {
            let found = SimFiles::from_image(cursor.crash(survival), &clock).directory("d");
            let a = found.open("a").expect("its name was synced");
            let mut one = [0; 3];
            a.read(100, &mut one).expect("its length was synced");
            assert_eq!(&one, b"one");
            (found.names().expect("names").len(), a.len_bytes().expect("length"))
        };
        assert_eq!(look(Survival::Nothing), (1, 1024));
        assert_eq!(look(Survival::Everything), (2, 1503));
        let seen: std::collections::BTreeSet<_> =
            (0..64).map(|seed| look(Survival::Random(seed))).collect();
        assert_eq!(seen.len(), 4, "names and lengths go each their way");
    }

    #[test]
    fn a_name_is_found_or_not_until_it_is_synced() {
        let clock = SimClock::default();
        let files = SimFiles::new(8192, &clock);
        files.start_trace();
        let directory = files.directory("d");
        directory.create("a", 0).expect("create");
        directory.sync_names().expect("sync");
        directory.remove("a").expect("remove");
        let trace = files.take_trace();
        let mut cursor = trace.cursor();
        cursor.advance_to_moment(u64::MAX);
        let names = |survival| cursor.crash(survival).files.len();
        assert_eq!((names(Survival::Nothing), names(Survival::Everything)), (1, 0));
    }

    #[test]
    fn a_full_file_system_refuses_files_and_growth() {
        let files = SimFiles::new(8192, &SimClock::default());
        files.set_capacity_bytes(2048);
        let directory = files.directory("d");
        let file = directory.create("a", 1024).expect("create");
        let error = directory.create("b", 2048).err().expect("full");
        assert_eq!(
            (error.operation, error.source.kind()),
            (Operation::Open, ErrorKind::StorageFull)
        );
        file.write(1000, &[1; 24]).expect("reserved");
        let error = file.write(2000, &[1; 100]).expect_err("full");
        assert_eq!(
            (error.operation, error.source.kind()),
            (Operation::Write, ErrorKind::StorageFull)
        );
        files.inject(Fault { operation: Operation::Write, skip_count: 0, forever: false });
        file.write(0, &[1; 24]).expect_err("injected");
    }
}
