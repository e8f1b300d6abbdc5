//! A machine that only exists in memory: its media, what its processes share, and a process's part.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use device::{
    BlockDevice, Durability, Fault, FileStore, FilesCursor, FilesImage, FilesTrace, Image,
    MappedNvram, Nvram, NvramCursor, NvramTrace, SharedWords, SimClock, SimDevice, SimFiles,
    SimNvram, Survival, Trace,
};
use parking_lot::Mutex;

use crate::chunk::DATA_OFFSET;
use crate::host::{Host, Settings, StreamMeta};
use crate::shared::{Client, Control, LaneWords};
use crate::{Result, StreamId, StreamName};

/// Longest file.
const FILE_BYTES_MAX: u64 = 2 << 20;
const SECTOR_BYTES: usize = 512;

/// What the media hold.
#[derive(Clone)]
pub(super) struct Images {
    files: FilesImage,
    nvram: Option<Image>,
    group: Option<Image>,
}

impl Images {
    /// Of a machine that nothing was done with.
    pub(super) fn fresh(settings: &Settings) -> Images {
        let files = SimFiles::new(FILE_BYTES_MAX, &SimClock::default());
        files.start_trace();
        let trace = files.take_trace();
        let chunk_bytes = DATA_OFFSET + settings.chunk_bytes;
        let pool_bytes = chunk_bytes * u64::from(settings.chunk_count);
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
    pub(super) group: Option<SimDevice>,
    control: Arc<SharedWords>,
    lanes: Mutex<HashMap<StreamId, Arc<SharedWords>>>,
    chunks: Mutex<HashMap<usize, Arc<dyn Nvram>>>,
    dead: Mutex<HashSet<Client>>,
    lock: Mutex<()>,
}

impl Machine {
    pub(super) fn power_up(settings: &Settings, images: Images) -> Arc<Machine> {
        let clock = SimClock::default();
        let device = |image| SimDevice::from_image(image, SECTOR_BYTES).with_clock(&clock);
        Arc::new(Machine {
            settings: settings.clone(),
            files: SimFiles::from_image(images.files, &clock),
            nvram: images
                .nvram
                .map(|image| Arc::new(SimNvram::from_image(image).with_clock(&clock))),
            group: images.group.map(device),
            clock,
            control: words(Control::COUNT),
            lanes: Mutex::default(),
            chunks: Mutex::default(),
            dead: Mutex::default(),
            lock: Mutex::default(),
        })
    }

    pub(super) fn start_trace(&self) {
        self.files.start_trace();
        self.nvram.iter().for_each(|nvram| nvram.start_trace());
        self.group.iter().for_each(SimDevice::start_trace);
    }

    pub(super) fn take_trace(&self) -> Traces {
        Traces {
            files: self.files.take_trace(),
            nvram: self.nvram.as_ref().map(|nvram| nvram.take_trace()),
            group: self.group.as_ref().map(SimDevice::take_trace),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Lets an operation on files or the group log fail.
    pub(super) fn inject(&self, on_group: bool, fault: Fault) {
        match &self.group {
            Some(group) if on_group => group.inject(fault),
            _ => self.files.inject(fault),
        }
    }

    /// A new process.
    pub(super) fn process(self: &Arc<Self>) -> Arc<SimHost> {
        let control = Control(self.control.clone());
        let generation = control.generation().fetch_add(1, std::sync::atomic::Ordering::AcqRel) + 1;
        Arc::new(SimHost { machine: self.clone(), client: Client::new(0, generation) })
    }

    /// Flips a bit of the record at `lsn` in its log file; false when recovery would not look there.
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

    pub(super) fn is_ready(&self) -> bool {
        Control(self.control.clone()).state().load(std::sync::atomic::Ordering::Acquire) != 0
    }
}

/// What was done to all media.
pub(super) struct Traces {
    files: FilesTrace,
    nvram: Option<NvramTrace>,
    group: Option<Trace>,
}

impl Traces {
    /// The moments that differ, ascending.
    pub(super) fn moments(&self) -> Vec<u64> {
        let mut moments: Vec<u64> = self.files.moments().collect();
        moments.extend(self.nvram.iter().flat_map(NvramTrace::moments));
        moments.extend(self.group.iter().flat_map(Trace::moments));
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    pub(super) fn cursor(&self) -> Cursors<'_> {
        Cursors {
            files: self.files.cursor(),
            nvram: self.nvram.as_ref().map(NvramTrace::cursor),
            group: self.group.as_ref().map(Trace::cursor),
        }
    }
}

/// All media at one moment.
pub(super) struct Cursors<'a> {
    files: FilesCursor<'a>,
    nvram: Option<NvramCursor<'a>>,
    group: Option<device::Cursor<'a>>,
}

impl Cursors<'_> {
    pub(super) fn advance_to(&mut self, moment: u64) {
        self.files.advance_to_moment(moment);
        self.nvram.iter_mut().for_each(|cursor| cursor.advance_to_moment(moment));
        self.group.iter_mut().for_each(|cursor| cursor.advance_to_moment(moment));
    }

    pub(super) fn crash(&self, survival: Survival) -> Images {
        Images {
            files: self.files.crash(survival),
            nvram: self.nvram.as_ref().map(|cursor| cursor.crash(survival)),
            group: self.group.as_ref().map(|cursor| cursor.crash(survival)),
        }
    }
}

/// A process on the machine.
pub(super) struct SimHost {
    machine: Arc<Machine>,
    client: Client,
}

impl SimHost {
    /// The process is gone.
    pub(super) fn die(&self) {
        self.machine.dead.lock().insert(self.client);
    }

    fn meta_directory(&self) -> impl FileStore + use<> {
        self.machine.files.directory("streams")
    }

    /// The file's text; `None`: there is no such file, or nothing was stored in it.
    fn read_text(&self, store: &dyn FileStore, name: &str) -> Result<Option<String>> {
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

    fn write_text(&self, store: &dyn FileStore, name: &str, text: &str) -> Result<()> {
        let file = match store.names()?.iter().any(|found| found == name) {
            true => store.open(name)?,
            false => store.create(name, SECTOR_BYTES as u64)?,
        };
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(SECTOR_BYTES, 0);
        file.write(0, &bytes)?;
        file.sync()?;
        Ok(store.sync_names()?)
    }
}

impl Host for SimHost {
    fn settings(&self) -> &Settings {
        &self.machine.settings
    }

    fn control(&self) -> Arc<SharedWords> {
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

    fn lane_words(&self, stream: StreamId) -> Result<Arc<SharedWords>> {
        let mut lanes = self.machine.lanes.lock();
        Ok(lanes.entry(stream).or_insert_with(|| words(LaneWords::COUNT)).clone())
    }

    fn chunk(&self, index: usize) -> Result<Arc<dyn Nvram>> {
        let mut chunks = self.machine.chunks.lock();
        let make = || -> Arc<dyn Nvram> {
            let len_bytes = DATA_OFFSET + self.machine.settings.chunk_bytes;
            match &self.machine.nvram {
                Some(all) => {
                    let begin = index as u64 * len_bytes;
                    Arc::new(Window { all: all.clone(), begin, len_bytes })
                }
                None => {
                    let len_bytes = usize::try_from(len_bytes).expect("small");
                    Arc::new(MappedNvram::in_memory(len_bytes).expect("memory"))
                }
            }
        };
        Ok(chunks.entry(index).or_insert_with(make).clone())
    }

    fn group(&self) -> Option<&dyn BlockDevice> {
        self.machine.group.as_ref().map(|device| device as &dyn BlockDevice)
    }

    fn streams(&self) -> Result<Vec<(StreamName, StreamMeta)>> {
        let store = self.meta_directory();
        let mut streams = Vec::new();
        for name in store.names()? {
            if let Some(text) = self.read_text(&store, &name)? {
                let meta = serde_json::from_str(&text).expect("written whole");
                streams.push((name.parse().expect("a name"), meta));
            }
        }
        Ok(streams)
    }

    fn create_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<StreamMeta> {
        let _lock = self.machine.lock.lock();
        let store = self.meta_directory();
        if let Some(text) = self.read_text(&store, name.as_str())? {
            return Ok(serde_json::from_str(&text).expect("written whole"));
        }
        // What is left of a stream that had this name.
        let old = self.machine.files.directory(name.as_str());
        for file in old.names()? {
            old.remove(&file)?;
        }
        old.sync_names()?;
        let control = Control(self.control());
        let id = control.next_stream().fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        let meta = StreamMeta { id: u32::try_from(id).expect("few"), ..meta.clone() };
        self.write_text(&store, name.as_str(), &serde_json::to_string(&meta).expect("plain"))?;
        Ok(meta)
    }

    fn remove_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<()> {
        let _lock = self.machine.lock.lock();
        let store = self.meta_directory();
        store.remove(name.as_str())?;
        store.sync_names()?;
        let files = self.machine.files.directory(name.as_str());
        for file in files.names()? {
            files.remove(&file)?;
        }
        self.machine.lanes.lock().remove(&StreamId(meta.id));
        Ok(())
    }

    fn store(&self, name: &StreamName) -> Result<Arc<dyn FileStore>> {
        Ok(Arc::new(self.machine.files.directory(name.as_str())))
    }

    fn usn_limit(&self) -> Result<u64> {
        let text = self.read_text(&self.machine.files.directory("root"), "usn-limit")?;
        Ok(text.map_or(0, |text| text.parse().expect("a number")))
    }

    fn keep_usn_limit(&self, limit: u64) -> Result<()> {
        self.write_text(&self.machine.files.directory("root"), "usn-limit", &limit.to_string())
    }

    fn locked(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _lock = self.machine.lock.lock();
        f()
    }
}

fn words(count: usize) -> Arc<SharedWords> {
    Arc::new(SharedWords::anonymous(count).expect("words"))
}

/// A part of the NVRAM: a fence is one for all of it, as on a real machine.
struct Window {
    all: Arc<SimNvram>,
    begin: u64,
    len_bytes: u64,
}

impl Window {
    fn at(&self, offset: u64, len_bytes: usize) -> u64 {
        assert!(offset + len_bytes as u64 <= self.len_bytes, "outside of the chunk");
        self.begin + offset
    }
}

impl Nvram for Window {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn durability(&self) -> Durability {
        self.all.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.all.read(self.at(offset, buf.len()), buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> device::Result<()> {
        self.all.store(self.at(offset, data.len()), data)
    }

    fn persist(&self) -> device::Result<()> {
        self.all.persist()
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> device::Result<()> {
        let len_bytes = pieces.iter().map(|piece| piece.len()).sum();
        self.all.write_durable(self.at(offset, len_bytes), pieces)
    }
}
