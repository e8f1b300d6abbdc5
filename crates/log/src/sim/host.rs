//! A simulated machine: its media, the memory that its processes share, and one process's view of
//! both.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device::sync::Mutex;
use device::{BlockDevice, Durability, FileStore, Nvram, SharedWords, StoredFile};
use host::{Folder, Trust};
use onejournal_testing::{
    Cursors as MediaCursors, Fault, FilesCursor, FilesImage, FilesTrace, Image, SimClock,
    SimDevice, SimFiles, SimMedium, SimNvram, Survival, Traces as MediaTraces,
};

use super::media::{ChunkFile, Directory, Disk, Lie};
use crate::format::chunk::DATA_OFFSET;
use crate::host::{Host, Settings, StreamMeta};
use crate::words::client_copy::{RemoteWords, leases_in, make_remote_words};
use crate::words::{Client, Control, LaneWords};
use crate::{LogError, Result, StreamId, StreamName, faults};

/// Longest file.
const FILE_BYTES_MAX: u64 = 2 << 20;
const SECTOR_BYTES: usize = 512;
/// Free space on the NVRAM, in chunks: room for the new file of one chunk that is being replaced.
const SPARE_COUNT: u64 = 1;

/// What the media hold.
#[derive(Clone)]
pub(super) struct Images {
    files: FilesImage,
    nvram: Option<Image>,
    group: Option<Image>,
}

impl Images {
    /// The media of a new machine.
    pub(super) fn fresh(settings: &Settings) -> Images {
        let files = SimFiles::new(FILE_BYTES_MAX, &SimClock::default());
        files.start_trace();
        let trace = files.take_trace();
        let chunk_bytes = DATA_OFFSET + settings.chunk_bytes;
        let pool_bytes = chunk_bytes * (u64::from(settings.chunk_count) + SPARE_COUNT);
        let is_nvram = settings.nvram.is_some();
        Images {
            files: trace.cursor().crash(Survival::Nothing),
            nvram: is_nvram.then(|| Image::zeroed(pool_bytes)),
            group: (!is_nvram).then(|| Image::zeroed(settings.group_bytes)),
        }
    }
}

/// A running machine: its media and its memory.
pub(super) struct Machine {
    pub(super) settings: Settings,
    pub(super) clock: SimClock,
    pub(super) files: SimFiles,
    nvram: Option<Arc<SimNvram>>,
    group: Option<Disk>,
    control: Control,
    lanes: Mutex<HashMap<StreamId, LaneWords>>,
    chunks: Mutex<HashMap<usize, Arc<ChunkFile>>>,
    /// For chunks whose files were replaced: where on the NVRAM their present files are.
    slots: Mutex<HashMap<usize, usize>>,
    /// Chunks whose descriptors are on their way to a client.
    handed: Mutex<Vec<Arc<ChunkFile>>>,
    /// The words of clients. They are real files, because clients lock them.
    words: OnceLock<tempfile::TempDir>,
    dead: Mutex<HashSet<Client>>,
    lock: Mutex<()>,
    /// A process was stopped while it has the lock.
    is_lock_kept: AtomicBool,
}

impl Machine {
    pub(super) fn power_up(settings: &Settings, images: Images) -> Arc<Machine> {
        let clock = SimClock::default();
        let device = |image| SimDevice::from_image(image, SECTOR_BYTES).with_clock(&clock);
        let files = SimFiles::from_image(images.files, &clock);
        Arc::new(Machine {
            settings: settings.clone(),
            slots: Mutex::new(slots_of(&files)),
            files,
            nvram: images
                .nvram
                .map(|image| Arc::new(SimNvram::from_image(image).with_clock(&clock))),
            group: images.group.map(|image| Disk(device(image))),
            clock,
            control: Control::new(words(Control::COUNT)),
            lanes: Mutex::default(),
            chunks: Mutex::default(),
            handed: Mutex::default(),
            words: OnceLock::new(),
            dead: Mutex::default(),
            lock: Mutex::default(),
            is_lock_kept: AtomicBool::new(false),
        })
    }

    /// The medium beside the files.
    fn medium(&self) -> Option<&SimMedium> {
        let group = self.group.as_ref().map(|group| &*group.0);
        self.nvram.as_ref().map(|nvram| &***nvram).or(group)
    }

    pub(super) fn start_trace(&self) {
        self.files.start_trace();
        self.medium().into_iter().for_each(SimMedium::start_trace);
    }

    pub(super) fn take_trace(&self) -> Traces {
        Traces {
            files: self.files.take_trace(),
            medium: MediaTraces(self.medium().into_iter().map(SimMedium::take_trace).collect()),
            is_nvram: self.nvram.is_some(),
        }
    }

    /// Says whether a process was stopped while it has the lock.
    pub(super) fn keep_lock(&self, is_kept: bool) {
        self.is_lock_kept.store(is_kept, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Lets an operation on files or the group log fail.
    pub(super) fn inject(&self, on_group: bool, fault: Fault) {
        match &self.group {
            Some(group) if on_group => group.0.inject(fault),
            _ => self.files.inject(fault),
        }
    }

    /// A new process.
    pub(super) fn process(self: &Arc<Self>) -> Arc<SimHost> {
        Arc::new(SimHost { machine: self.clone(), client: self.control.join(0) })
    }

    /// Flips a bit of the record at `lsn` in its log file. Returns false if recovery would not read
    /// it.
    pub(super) fn damage(&self, stream: &str, lsn: u64) -> bool {
        const DATA_OFFSET: u64 = 64;
        let names = self.files.directory(stream).names().expect("names");
        let first = |name: &String| {
            name.strip_suffix(".seg").map(|hex| u64::from_str_radix(hex, 16).expect("an LSN"))
        };
        match names.iter().filter_map(first).max() {
            Some(last) if last <= lsn => {
                let name = format!("{stream}/{last:016x}.seg");
                self.files.flip_bit(&name, DATA_OFFSET + lsn - last + 9, 3);
                true
            }
            _ => false,
        }
    }

    /// The chunks that a client maps from the descriptors that it was sent.
    pub(super) fn take_handed(&self) -> Vec<Arc<ChunkFile>> {
        std::mem::take(&mut self.handed.lock())
    }

    fn words_folder(&self) -> Folder {
        let make = || tempfile::tempdir_in("/dev/shm").expect("shared memory");
        Folder::open(self.words.get_or_init(make).path(), Trust::own()).expect("ours")
    }

    /// Files with words of clients.
    pub(super) fn words_count(&self) -> usize {
        let Some(words) = self.words.get() else { return 0 };
        std::fs::read_dir(words.path()).expect("a directory").count()
    }

    /// The present file of a chunk.
    fn chunk(&self, index: usize) -> Arc<ChunkFile> {
        let len_bytes = DATA_OFFSET + self.settings.chunk_bytes;
        let slot = self.slots.lock().get(&index).copied().unwrap_or(index);
        let make = || match &self.nvram {
            Some(all) => ChunkFile::on_nvram(all.clone(), slot as u64 * len_bytes, len_bytes),
            None => ChunkFile::in_memory(len_bytes),
        };
        self.chunks.lock().entry(index).or_insert_with(|| Arc::new(make())).clone()
    }

    /// A slot of the NVRAM that holds no chunk.
    fn spare_slot(&self) -> usize {
        let chunk_count = self.settings.chunk_count as usize;
        let slots = self.slots.lock();
        let taken: Vec<usize> = (0..chunk_count).map(|i| *slots.get(&i).unwrap_or(&i)).collect();
        (0..).find(|slot| !taken.contains(slot)).expect("one more than chunks")
    }

    pub(super) fn is_ready(&self) -> bool {
        self.control.is_recovered()
    }
}

/// Traces of all operations on all media.
pub(super) struct Traces {
    files: FilesTrace,
    /// The trace of the NVRAM, or of the group log's device.
    medium: MediaTraces,
    is_nvram: bool,
}

impl Traces {
    /// The moments at which the media differ, in ascending order.
    pub(super) fn moments(&self) -> Vec<u64> {
        let mut moments = self.medium.moments();
        moments.extend(self.files.moments());
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    pub(super) fn cursor(&self) -> Cursors<'_> {
        Cursors {
            files: self.files.cursor(),
            medium: self.medium.cursor(),
            is_nvram: self.is_nvram,
        }
    }
}

/// All media at one moment.
pub(super) struct Cursors<'a> {
    files: FilesCursor<'a>,
    medium: MediaCursors<'a>,
    is_nvram: bool,
}

impl Cursors<'_> {
    pub(super) fn advance_to(&mut self, moment: u64) {
        self.files.advance_to_moment(moment);
        self.medium.advance_to_moment(moment);
    }

    pub(super) fn crash(&self, survival: Survival) -> Images {
        let medium = self.medium.crash(survival).pop();
        let (nvram, group) = if self.is_nvram { (medium, None) } else { (None, medium) };
        Images { files: self.files.crash(survival), nvram, group }
    }
}

/// A process on the machine.
pub(super) struct SimHost {
    machine: Arc<Machine>,
    client: Client,
}

/// The NVRAM slots of the chunks that are not in their first slot.
fn slots_of(files: &SimFiles) -> HashMap<usize, usize> {
    let store = files.directory("chunks");
    let mut slots = HashMap::new();
    for name in store.names().expect("names") {
        if let Some(text) = read_text(&store, &name).expect("read") {
            slots.insert(name.parse().expect("a number"), text.parse().expect("a number"));
        }
    }
    slots
}

/// The file's text. `None`: there is no such file, or it is empty.
fn read_text(store: &dyn FileStore, name: &str) -> Result<Option<String>> {
    if !store.names()?.iter().any(|found| found == name) {
        return Ok(None);
    }
    let file = store.open(name)?;
    let mut bytes = vec![0; usize::try_from(file.len_bytes()?).expect("short")];
    file.read(0, &mut bytes)?;
    let text = String::from_utf8(bytes).expect("text");
    let text = text.trim_end_matches('\0');
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn write_text(store: &dyn FileStore, name: &str, text: &str) -> Result<Box<dyn StoredFile>> {
    let file = match store.names()?.iter().any(|found| found == name) {
        true => store.open(name)?,
        false => store.create(name, SECTOR_BYTES as u64)?,
    };
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(SECTOR_BYTES, 0);
    file.write(0, &bytes)?;
    Ok(file)
}

fn sync_text(store: &dyn FileStore, file: &dyn StoredFile) -> Result<()> {
    file.sync()?;
    Ok(store.sync_names()?)
}

impl SimHost {
    /// The process is gone.
    pub(super) fn die(&self) {
        self.machine.dead.lock().insert(self.client);
    }

    fn directory(&self, name: &str) -> impl FileStore + use<> {
        Directory::new(self.machine.files.directory(name))
    }
}

impl Host for SimHost {
    fn settings(&self) -> &Settings {
        &self.machine.settings
    }

    fn control(&self) -> Control {
        self.machine.control.clone()
    }

    fn client(&self) -> Client {
        self.client
    }

    fn is_dead(&self, client: Client) -> bool {
        self.machine.dead.lock().contains(&client)
    }

    fn nvram(&self) -> Option<Durability> {
        self.machine.nvram.as_ref().map(|nvram| nvram.durability())
    }

    fn lane_words(&self, stream: StreamId) -> Result<LaneWords> {
        let mut lanes = self.machine.lanes.lock();
        Ok(lanes.entry(stream).or_insert_with(|| LaneWords::new(words(LaneWords::COUNT))).clone())
    }

    fn chunk(&self, index: usize) -> Result<Arc<dyn Nvram>> {
        Ok(self.machine.chunk(index))
    }

    fn chunk_file(&self, index: usize) -> Result<OwnedFd> {
        self.machine.handed.lock().push(self.machine.chunk(index));
        // In its place.
        let nothing = File::open("/dev/null").expect("it is everywhere");
        Ok(nothing.into())
    }

    fn replace_chunk(&self, index: usize) -> Result<()> {
        let (machine, len_bytes) = (&self.machine, DATA_OFFSET + self.machine.settings.chunk_bytes);
        let old = machine.chunk(index);
        let Some(all) = &machine.nvram else {
            machine.chunks.lock().insert(index, Arc::new(ChunkFile::in_memory(len_bytes)));
            old.cut();
            return Ok(());
        };
        let slot = machine.spare_slot();
        let new = ChunkFile::on_nvram(all.clone(), slot as u64 * len_bytes, len_bytes);
        let zeros = vec![0; usize::try_from(len_bytes).expect("small")];
        new.write_durable(0, &[&zeros])?;
        // Who looks for the chunk finds the new one from here on; a power cut may bring the old one
        // back.
        let store = machine.files.directory("chunks");
        let file = write_text(&store, &index.to_string(), &slot.to_string())?;
        machine.slots.lock().insert(index, slot);
        machine.chunks.lock().insert(index, Arc::new(new));
        faults::crash_point();
        sync_text(&store, &*file)?;
        faults::crash_point();
        old.cut();
        Ok(())
    }

    fn remote_words(&self, stream: StreamId, serial: u64) -> Result<Arc<RemoteWords>> {
        Ok(Arc::new(RemoteWords::open(&self.machine.words_folder(), stream, serial)?))
    }

    fn make_remote_words(&self, stream: StreamId, serial: u64, words: &LaneWords) -> Result<File> {
        make_remote_words(&self.machine.words_folder(), stream, serial, words)
    }

    fn remote_leases(&self) -> Result<Vec<(StreamId, u64)>> {
        match self.machine.words.get() {
            Some(_) => leases_in(&self.machine.words_folder()),
            None => Ok(Vec::new()),
        }
    }

    fn group(&self) -> Option<&dyn BlockDevice> {
        self.machine.group.as_ref().map(|device| device as &dyn BlockDevice)
    }

    fn streams(&self) -> Result<Vec<(StreamName, StreamMeta)>> {
        let store = self.directory("streams");
        let mut streams = Vec::new();
        for name in store.names()? {
            if let Some(text) = read_text(&store, &name)? {
                let meta = serde_json::from_str(&text).expect("written whole");
                streams.push((name.parse().expect("a name"), meta));
            }
        }
        Ok(streams)
    }

    fn create_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<StreamMeta> {
        let _lock = self.machine.lock.lock();
        let store = self.directory("streams");
        if let Some(text) = read_text(&store, name.as_str())? {
            return Ok(serde_json::from_str(&text).expect("written whole"));
        }
        // What is left of a stream that had this name.
        let old = self.directory(name.as_str());
        for file in old.names()? {
            old.remove(&file)?;
        }
        old.sync_names()?;
        let id = self.machine.control.next_stream();
        self.machine.control.set_next_stream(id + 1);
        let meta = StreamMeta { id: u32::try_from(id).expect("few"), ..meta.clone() };
        let text = serde_json::to_string(&meta).expect("plain");
        sync_text(&store, &*write_text(&store, name.as_str(), &text)?)?;
        Ok(meta)
    }

    fn keep_stream(&self, name: &StreamName) -> Result<()> {
        if fault::is(Lie::FoundStreamNotKept) {
            return Ok(());
        }
        let store = self.directory("streams");
        if store.names()?.iter().any(|found| found == name.as_str()) {
            store.open(name.as_str())?.sync()?;
        }
        Ok(store.sync_names()?)
    }

    fn remove_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<()> {
        let _lock = self.machine.lock.lock();
        let store = self.directory("streams");
        store.remove(name.as_str())?;
        store.sync_names()?;
        let files = self.directory(name.as_str());
        for file in files.names()? {
            files.remove(&file)?;
        }
        self.machine.lanes.lock().remove(&StreamId(meta.id));
        Ok(())
    }

    fn store(&self, name: &StreamName) -> Result<Arc<dyn FileStore>> {
        Ok(Arc::new(Directory::of_stream(self.machine.files.directory(name.as_str()))))
    }

    fn usn_limit(&self) -> Result<u64> {
        let text = read_text(&self.directory("root"), "usn-limit")?;
        Ok(text.map_or(0, |text| text.parse().expect("a number")))
    }

    fn keep_usn_limit(&self, limit: u64) -> Result<()> {
        if fault::is(Lie::UsnLimitNotKept) {
            return Ok(());
        }
        let store = self.directory("root");
        sync_text(&store, &*write_text(&store, "usn-limit", &limit.to_string())?)
    }

    fn locked(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _lock = self.machine.lock.lock();
        if self.machine.is_lock_kept.load(Ordering::Relaxed) {
            let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(LogError::system("the lock", source));
        }
        f()
    }
}

fn words(count: usize) -> Arc<SharedWords> {
    Arc::new(SharedWords::anonymous(count).expect("words"))
}
