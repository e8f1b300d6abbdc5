//! A service's directory.
//!
//! ```text
//! DIR/service.json          settings
//!     lock                  held while the service or a stream is opened, made or removed
//!     clients/000 ...       one file a client, locked while it lives
//!     daemon                names the socket of the daemon, which locks it
//!     usn-limit             no USN was given beyond this
//!     life                  where the shared memory is, and whose (`life`)
//!     group.log             the group log, where lanes are ordinary memory
//!     streams/NAME/         stream.json, log files, head
//! /dev/shm/onejournal-LIFE/ control, lane-ID: words; chunk-NNNN unless they lie on NVRAM;
//!                           client-ID-LEASE: words of a client of the daemon, locked by it
//! NVRAM/onejournal-UUID/    owner, chunk-NNNN
//! ```
//!
//! The memory outlives the processes, not the machine. When it is there a new process joins and goes on; when
//! it is not, the service is recovered from what is durable.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{
    Access, BlockDevice, Directory, Disk, Durability, FileStore, ForkClosed, MappedNvram, Nvram,
    SharedWords,
};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;

use crate::chunk::DATA_OFFSET;
use crate::chunk_file::ChunkFile;
use crate::files::{
    at, make_directory, open_or_make, open_reserved, open_words, parse, sync_directory, write_whole,
};
use crate::group::newest_header;
use crate::host::{Host, Settings, StreamMeta};
use crate::life::{CONTROL, find_memory, make_memory, nvram_of};
use crate::media::{class_of, open_group};
use crate::options::{Options, settings_of};
use crate::remote::{RemoteWords, leases_in, make_remote_words, words_path};
use crate::served::{Serving, refuse_if_served};
use crate::shared::{CLIENT_COUNT_MAX, Client, Control, LaneWords, STREAM_COUNT_MAX};
use crate::slots::{Lock, is_joined, refuse_if_joined, slot_path, take_slot};
use crate::{LogError, Result, StreamId, StreamName, clock};

/// A service's directory, joined by this process.
pub(crate) struct Place {
    path: PathBuf,
    settings: Settings,
    memory: PathBuf,
    control: Arc<SharedWords>,
    client: Client,
    /// Locked while this process lives, or until it gives the memory back.
    slot: ForkClosed,
    has_left: AtomicBool,
    /// If this process is the directory's daemon.
    serving: Option<Serving>,
    /// Where the chunks are and what they survive there, if that is not the shared memory.
    nvram: Option<(PathBuf, Durability)>,
    group: Option<Disk>,
    /// The pool as far as this process has it open, with the chunks' holders.
    chunks: Mutex<OpenChunks>,
}

/// By number: holder and memory.
type OpenChunks = HashMap<usize, (u64, Arc<dyn Nvram>)>;

impl Place {
    /// Joins the service in `path`, which is made with `options` when there is none; the second value
    /// says whether its memory is new, so that it has to be recovered, by `recover`, before anybody
    /// else joins.
    ///
    /// With `socket`, as the daemon that will listen there, who has the directory for itself.
    pub(crate) fn join(
        path: &Path,
        options: &Options,
        socket: Option<&Path>,
        recover: impl FnOnce(Arc<Place>) -> Result<()>,
    ) -> Result<Arc<Place>> {
        if !path.is_dir() {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(at(path))?;
            }
            // Others may come to a socket in it, and find no name.
            make_directory(path, 0o711)?;
            // Else a power cut could take the whole directory.
            sync_directory(&path.join(".."))?;
        }
        let lock = Lock::take(path)?;
        refuse_if_served(path)?;
        let serving = match socket {
            Some(socket) => {
                refuse_if_joined(path, "processes that opened it themselves use it")?;
                Some(Serving::claim(path, socket)?)
            }
            None => None,
        };
        let settings = settings_of(path, options)?;
        make_directory(&path.join("clients"), 0o700)?;
        make_directory(&path.join("streams"), 0o700)?;
        let found = find_memory(path)?;
        let is_new = found.is_none();
        let memory = found.map_or_else(|| make_memory(path, &options.memory), Ok)?;
        // The control file gets its name when the service is recovered: until then there is no memory.
        let control_path = memory.join(if is_new { "control.new" } else { CONTROL });
        let control = Arc::new(open_words(&control_path, Control::COUNT)?);
        let (client, slot) = take_slot(path, &Control(control.clone()))?;
        let nvram = match &settings.nvram {
            Some(nvram) => {
                let own = nvram_of(path, nvram, &settings, has_streams(path)?)?;
                let class = class_of(&own, &settings)?;
                Some((own, class))
            }
            None => None,
        };
        let group = match &nvram {
            None => {
                let device =
                    open_group(&path.join("group.log"), settings.group_bytes, has_streams(path)?)?;
                if !is_new && newest_header(&device)?.is_none() {
                    // Somebody made it anew. The lanes hold all that is not drained.
                    Control(control.clone()).group_unsure().store(1, Ordering::Release);
                }
                Some(device)
            }
            Some(_) => None,
        };
        let path = path.to_owned();
        let chunks = Mutex::new(HashMap::new());
        let place = Arc::new(Place {
            path,
            settings,
            memory,
            control,
            client,
            slot,
            has_left: AtomicBool::new(false),
            serving,
            nvram,
            group,
            chunks,
        });
        if is_new {
            recover(place.clone())?;
            let name = place.memory.join(CONTROL);
            fs::rename(&control_path, &name).map_err(at(&name))?;
        }
        drop(lock);
        Ok(place)
    }

    /// Removes the shared memory if no other process has joined and `is_done` says that nothing is in it. Nobody may
    /// use this place behind that.
    pub(crate) fn give_memory_back(&self, is_done: impl FnOnce() -> Result<bool>) -> Result<()> {
        let is_alone = || !is_joined(&self.path, self.client.slot());
        let control = Control(self.control.clone());
        let joined_count = || control.generation().load(Ordering::Acquire);
        // Not under the lock, which streams are opened under.
        let before = joined_count();
        if !is_alone() || !is_done()? {
            return Ok(());
        }
        let _lock = Lock::take(&self.path)?;
        if is_alone() && joined_count() == before {
            // Without this one the rest is nothing, wherever this ends.
            let name = self.memory.join(CONTROL);
            fs::remove_file(&name).map_err(at(&name))?;
            // Whoever waits for the lock makes new memory, and must find nobody who uses this one.
            self.has_left.store(true, Ordering::Release);
            rustix::fs::flock(&self.slot, FlockOperation::Unlock)
                .map_err(|e| at(&self.path)(e.into()))?;
            fs::remove_dir_all(&self.memory).map_err(at(&self.memory))?;
            // What was not given of the last hour is given by the next one. Behind the memory, which holds the limit
            // that those who use it go by.
            let base = control.usn_base().load(Ordering::Acquire);
            let limit = control.usn_limit().load(Ordering::Acquire);
            let given = base.wrapping_add(clock::monotonic_ns()) + 1;
            if let Err(e) = self.keep_usn_limit(given.min(limit)) {
                tracing::warn!("the limit of USNs that is kept stays: {e}");
            }
        }
        Ok(())
    }

    /// Directory of a stream.
    pub(crate) fn stream_path(&self, name: &StreamName) -> PathBuf {
        self.path.join("streams").join(name.as_str())
    }

    fn chunk_path(&self, index: usize) -> PathBuf {
        let directory = self.nvram.as_ref().map_or(&self.memory, |(own, _)| own);
        directory.join(format!("chunk-{index:04}"))
    }

    fn chunk_len_bytes(&self) -> u64 {
        DATA_OFFSET + self.settings.chunk_bytes
    }

    /// The file of a lane's words; made when there is none.
    pub(crate) fn lane_fd(&self, stream: StreamId) -> Result<OwnedFd> {
        let path = self.memory.join(format!("lane-{}", stream.0));
        Ok(open_reserved(&path, LaneWords::COUNT as u64 * 8)?.into())
    }

    /// A number that no stream had since the memory was made, and whose place among
    /// [`STREAM_COUNT_MAX`] is nobody's. The caller holds the lock.
    fn new_id(&self) -> Result<u32> {
        let control = Control(self.control.clone());
        let place = |id: u64| id % STREAM_COUNT_MAX as u64;
        let first = control.next_stream().load(Ordering::Acquire);
        let mut taken = HashSet::new();
        if first >= STREAM_COUNT_MAX as u64 {
            taken.extend(self.streams()?.iter().map(|(_, meta)| place(meta.id.into())));
        }
        let id = (first..first + STREAM_COUNT_MAX as u64).find(|&id| !taken.contains(&place(id)));
        match id.map(|id| (id, u32::try_from(id))) {
            Some((id, Ok(number))) => {
                control.next_stream().store(id + 1, Ordering::Release);
                Ok(number)
            }
            Some(_) => Err(LogError::Usage("all numbers of streams were used".into())),
            None => Err(LogError::Usage(format!(
                "there are {STREAM_COUNT_MAX} streams: no more can be"
            ))),
        }
    }

    /// What the chunk memory is called.
    fn chunk_class(&self) -> Durability {
        self.nvram().unwrap_or(Durability::Process)
    }
}

/// Whether the service in `path` has streams.
fn has_streams(path: &Path) -> Result<bool> {
    let directory = path.join("streams");
    for entry in fs::read_dir(&directory).map_err(at(&directory))? {
        let meta = entry.map_err(at(&directory))?.path().join("stream.json");
        if meta.try_exists().map_err(at(&meta))? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Host for Place {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn control(&self) -> Arc<SharedWords> {
        self.control.clone()
    }

    fn client(&self) -> Client {
        self.client
    }

    fn is_dead(&self, client: Client) -> bool {
        let Some(slot) = client.slot().filter(|&slot| slot < CLIENT_COUNT_MAX) else { return true };
        let taken = Control(self.control.clone()).slot(slot).load(Ordering::Acquire);
        if Client::new(slot, taken) != client {
            return true;
        }
        match File::open(slot_path(&self.path, slot)) {
            Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            Err(_) => false,
        }
    }

    fn nvram(&self) -> Option<Durability> {
        self.nvram.as_ref().map(|(_, class)| *class)
    }

    fn lane_words(&self, stream: StreamId) -> Result<Arc<SharedWords>> {
        Ok(Arc::new(SharedWords::of_file(self.lane_fd(stream)?, LaneWords::COUNT)?))
    }

    fn chunk(&self, index: usize) -> Result<Arc<dyn Nvram>> {
        let holder = Control(self.control.clone()).chunk_holder(index).load(Ordering::Acquire);
        let mut chunks = self.chunks.lock();
        if let Some((for_holder, memory)) = chunks.get(&index)
            && *for_holder == holder
        {
            return Ok(memory.clone());
        }
        let (path, fd, class) =
            (self.chunk_path(index), self.chunk_file(index)?, self.chunk_class());
        if holder != 0 {
            let file = ChunkFile::new(fd.into(), self.chunk_len_bytes(), class);
            let memory: Arc<dyn Nvram> = Arc::new(file);
            // Others than the daemon may replace the file and not know of each other.
            if self.serving.is_some() {
                chunks.insert(index, (holder, memory.clone()));
            }
            return Ok(memory);
        }
        let memory = MappedNvram::share(path, fd, Access::ReadWrite, Some(class))?;
        let memory: Arc<dyn Nvram> = Arc::new(memory);
        chunks.insert(index, (holder, memory.clone()));
        Ok(memory)
    }

    fn chunk_file(&self, index: usize) -> Result<OwnedFd> {
        Ok(open_reserved(&self.chunk_path(index), self.chunk_len_bytes())?.into())
    }

    fn shorten_chunk(&self, index: usize) -> Result<bool> {
        let (path, len_bytes) = (self.chunk_path(index), self.chunk_len_bytes());
        match fs::metadata(&path) {
            Ok(found) if found.len() > len_bytes => {
                let file = open_or_make(&path, 0o600, len_bytes)?;
                file.set_len(len_bytes).map_err(at(&path))?;
                Ok(true)
            }
            // There need not be one.
            _ => Ok(false),
        }
    }

    fn replace_chunk(&self, index: usize) -> Result<()> {
        let path = self.chunk_path(index);
        let new = path.with_extension("new");
        let _ = fs::remove_file(&new);
        let file = open_or_make(&new, 0o600, self.chunk_len_bytes())?;
        let old = open_or_make(&path, 0o600, 0)?;
        if self.nvram.is_some() {
            file.sync_all().map_err(at(&new))?;
        }
        fs::rename(&new, &path).map_err(at(&path))?;
        if self.nvram.is_some() {
            sync_directory(path.parent().expect("in a directory"))?;
        }
        self.chunks.lock().remove(&index);
        // Whoever maps it still has no use for it; its memory is free for others.
        old.set_len(0).map_err(at(&path))
    }

    fn remote_words(&self, stream: StreamId, serial: u64) -> Result<Arc<RemoteWords>> {
        Ok(Arc::new(RemoteWords::open(&words_path(&self.memory, stream, serial), serial)?))
    }

    fn make_remote_words(&self, stream: StreamId, serial: u64, words: &LaneWords) -> Result<File> {
        make_remote_words(&words_path(&self.memory, stream, serial), words)
    }

    fn remote_leases(&self) -> Result<Vec<(StreamId, u64)>> {
        leases_in(&self.memory)
    }

    fn group(&self) -> Option<&dyn BlockDevice> {
        self.group.as_ref().map(|disk| disk as &dyn BlockDevice)
    }

    fn streams(&self) -> Result<Vec<(StreamName, StreamMeta)>> {
        let directory = self.path.join("streams");
        let mut streams = Vec::new();
        for entry in fs::read_dir(&directory).map_err(at(&directory))? {
            let entry = entry.map_err(at(&directory))?;
            let Ok(name) = entry.file_name().to_string_lossy().parse::<StreamName>() else {
                continue;
            };
            let path = entry.path().join("stream.json");
            match fs::read(&path) {
                Ok(text) => streams.push((name, parse(&path, &text)?)),
                // Being made, or being removed.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(at(&path)(e)),
            }
        }
        Ok(streams)
    }

    fn stream(&self, name: &StreamName) -> Result<Option<StreamMeta>> {
        let path = self.stream_path(name).join("stream.json");
        match fs::read(&path) {
            Ok(text) => Ok(Some(parse(&path, &text)?)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(at(&path)(e)),
        }
    }

    fn create_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<StreamMeta> {
        let _lock = Lock::take(&self.path)?;
        let directory = self.stream_path(name);
        let path = directory.join("stream.json");
        if let Some(meta) = self.stream(name)? {
            return Ok(meta);
        }
        // Left by a removal, or a making, that was cut.
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(at(&directory))?;
        }
        let meta = StreamMeta { id: self.new_id()?, ..meta.clone() };
        make_directory(&directory, 0o700)?;
        write_whole(&path, &serde_json::to_vec_pretty(&meta).expect("plain data"))?;
        sync_directory(&self.path.join("streams"))?;
        Ok(meta)
    }

    fn keep_stream(&self, name: &StreamName) -> Result<()> {
        let path = self.stream_path(name);
        if path.exists() {
            sync_directory(&path)?;
        }
        sync_directory(&self.path.join("streams"))
    }

    fn remove_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<()> {
        let _lock = Lock::take(&self.path)?;
        let directory = self.stream_path(name);
        let path = directory.join("stream.json");
        fs::remove_file(&path).map_err(at(&path))?;
        sync_directory(&directory)?;
        fs::remove_dir_all(&directory).map_err(at(&directory))?;
        let lane = self.memory.join(format!("lane-{}", meta.id));
        match fs::remove_file(&lane) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(at(&lane)(e)),
            _ => Ok(()),
        }
    }

    fn store(&self, name: &StreamName) -> Result<Arc<dyn FileStore>> {
        Ok(Arc::new(Directory::open(self.stream_path(name), 0o600)?))
    }

    fn usn_limit(&self) -> Result<u64> {
        let path = self.path.join("usn-limit");
        match fs::read_to_string(&path) {
            Ok(text) => text
                .trim()
                .parse()
                .map_err(|_| LogError::Incompatible(format!("{} holds no number", path.display()))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
            Err(e) => Err(at(&path)(e)),
        }
    }

    fn keep_usn_limit(&self, limit: u64) -> Result<()> {
        write_whole(&self.path.join("usn-limit"), format!("{limit}\n").as_bytes())
    }

    fn locked(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _lock = Lock::take(&self.path)?;
        f()
    }
}

impl Drop for Place {
    /// The last process to leave gives back the memory of the chunks that nobody has borrowed; the words,
    /// some kilobytes, stay, so that the next one need not recover anything. What a client of a daemon
    /// may have mapped stays too.
    fn drop(&mut self) {
        if self.nvram.is_some() || self.has_left.load(Ordering::Acquire) {
            return;
        }
        // Not waited for: whoever has it is joining, and will use the chunks.
        let Ok(Some(_lock)) = Lock::take_if_free(&self.path) else { return };
        if is_joined(&self.path, self.client.slot()) {
            return;
        }
        let control = Control(self.control.clone());
        for index in 0..self.settings.chunk_count as usize {
            let words = [control.chunk_owner(index), control.chunk_holder(index)];
            if words.iter().all(|word| word.load(Ordering::Acquire) == 0) {
                // There need not be one. It is made again when it is lent.
                let _ = fs::remove_file(self.chunk_path(index));
            }
        }
    }
}
