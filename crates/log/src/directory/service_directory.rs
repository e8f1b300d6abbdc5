//! A service's directory.
//!
//! ```text
//! DIR/service.json          settings
//!     lock                  held while the service or a stream is opened, made or removed
//!     clients/000 ...       one file a client, locked while it lives
//!     daemon                names the socket of the daemon, which locks it
//!     usn-limit             no USN was given beyond this
//!     incarnation           names this incarnation's shared memory (`incarnation`)
//!     group.log             the group log, where lanes are ordinary memory
//!     streams/NAME/         stream.json, log files, head
//! /dev/shm/onejournal-ID/   log: path of DIR; control, lane-ID: words;
//!                           chunk-NNNN unless they are on NVRAM;
//!                           client-ID-LEASE: words of a client of the daemon, locked by it
//! NVRAM/onejournal-UUID/    owner, chunk-NNNN
//! ```
//!
//! The memory outlives the processes, not the machine. When it is there a new process joins and
//! goes on; when it is not, the service is recovered from what is durable.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device::sync::Mutex;
use device::{
    BlockDevice, Directory, Disk, Durability, FileStore, MappedNvram, Nvram, SharedWords,
};
use host::{Access, Folder, ForkClosed};
use rustix::fs::{FlockOperation, makedev};

use crate::directory::incarnation::{
    CONTROL, Found, find_memory, make_memory, nvram_of, remove_memory,
};
use crate::directory::memory::SharedMemory;
use crate::directory::options::{Options, SETTINGS, settings_of};
use crate::directory::room::Room;
use crate::directory::served::{Serving, refuse_if_served};
use crate::directory::slots::{Lock, OPEN_LIMIT, Slots, USE_LIMIT};
use crate::error::Refusal;
use crate::format::chunk::DATA_OFFSET;
use crate::format::group::newest_header;
use crate::host::{Host, Settings, StreamMeta};
use crate::media::chunk_file::ChunkFile;
use crate::media::files::{
    make_folder, make_root, open_or_make, open_reserved, open_root, parse, remove_if_there, within,
    write_whole,
};
use crate::media::open::{check_nvram, chunk_name, class_of, open_group};
use crate::words::client_copy::{RemoteWords, leases_in};
use crate::words::{CLIENT_COUNT_MAX, ChunkState, Client, Control, LaneWords, STREAM_COUNT_MAX};
use crate::{LogError, Result, StreamId, StreamName, clock};

/// What a stream's directory has when there is a stream.
pub(crate) const META: &str = "stream.json";
const USN_LIMIT: &str = "usn-limit";
/// The name of the file `control` until the service is recovered: there is no memory before.
const NEW_CONTROL: &str = "control.new";
/// How long a process that joins waits for others to leave shared memory that was removed. They
/// look several times a second.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
const LEAVE_POLL: Duration = Duration::from_millis(5);

/// A service's directory, joined by this process.
pub(crate) struct ServiceDirectory {
    root: Folder,
    streams: Folder,
    slots: Slots,
    settings: Settings,
    memory: SharedMemory,
    control: Control,
    client: Client,
    /// Locked while this process lives, or until it releases the memory.
    slot: ForkClosed,
    has_left: AtomicBool,
    /// Set if this process is the directory's daemon.
    serving: Option<Serving>,
    /// The directory of the chunks and what they survive there. `None`: the chunks are in the
    /// shared memory.
    nvram: Option<(Folder, Durability)>,
    group: Option<Disk>,
    /// The chunks that this process has open, with their holders.
    chunks: Mutex<OpenChunks>,
}

/// Holder and memory of each chunk, by its number.
type OpenChunks = HashMap<usize, (u64, Arc<dyn Nvram>)>;

impl ServiceDirectory {
    /// Joins the service in `path`. If there is none, makes it with `options`. If its shared memory
    /// is new, `recover` recovers the service before another process can join.
    ///
    /// With `socket`: joins as the daemon that will listen there. No other process may use the
    /// directory then.
    pub(crate) fn join(
        path: &Path,
        options: &Options,
        socket: Option<&Path>,
        recover: impl FnOnce(Arc<ServiceDirectory>) -> Result<()>,
    ) -> Result<Arc<ServiceDirectory>> {
        let found = open_root(path, options.trust(), options.is_found)?;
        let settings =
            found.as_ref().map(|root| root.stat(SETTINGS).map_err(within(root, SETTINGS)));
        // A log that cannot be used is not made.
        if settings.transpose()?.flatten().is_none() {
            if options.is_found {
                return Err(LogError::NotFound(format!("there is no log in {}", path.display())));
            }
            if let Some(nvram) = &options.nvram {
                check_nvram(nvram, options.durability)?;
            }
            options.room().check(&options.memory)?;
        }
        let root = found.map_or_else(|| make_root(path, options.trust()), Ok)?;
        ServiceDirectory::join_root(&root, options, socket, recover)
    }

    /// Joins the service of the same directory again, after this process has left it.
    pub(crate) fn join_root_again(
        &self,
        options: &Options,
        recover: impl FnOnce(Arc<ServiceDirectory>) -> Result<()>,
    ) -> Result<Arc<ServiceDirectory>> {
        ServiceDirectory::join_root(&self.root, options, None, recover)
    }

    /// The path by which the directory was opened, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// The user to whom the directory belongs.
    pub(crate) fn owner(&self) -> u32 {
        self.root.owner()
    }

    fn join_root(
        root: &Folder,
        options: &Options,
        socket: Option<&Path>,
        recover: impl FnOnce(Arc<ServiceDirectory>) -> Result<()>,
    ) -> Result<Arc<ServiceDirectory>> {
        let begin = Instant::now();
        loop {
            let lock = Lock::take(root, OPEN_LIMIT)?;
            refuse_if_served(root)?;
            let slots = Slots::open(root)?;
            let serving = socket.map(|socket| serving(root, &slots, socket)).transpose()?;
            let settings = settings_of(root, options)?;
            let found = match find_memory(root, &slots)? {
                // They leave it soon, unless they see another one.
                Found::Used(_) if begin.elapsed() < LEAVE_WAIT => {
                    drop((serving, lock));
                    std::thread::sleep(LEAVE_POLL);
                    continue;
                }
                Found::Used(refusal) => return Err(refusal),
                Found::None => None,
                Found::Memory(memory) => Some(memory),
            };
            let is_new = found.is_none();
            let make = || make_memory(root, &slots, &options.memory, Room::of(&settings));
            let memory = found.map_or_else(make, Ok)?;
            let root = root.clone();
            let joined = ServiceDirectory::open((root, slots, settings), memory, is_new, serving)?;
            if is_new {
                recover(joined.clone())?;
                let folder = joined.memory.folder();
                folder.rename(NEW_CONTROL, CONTROL).map_err(within(folder, CONTROL))?;
            }
            drop(lock);
            return Ok(joined);
        }
    }

    /// Opens everything of the service, whose lock the caller has.
    fn open(
        (root, slots, settings): (Folder, Slots, Settings),
        memory: Folder,
        is_new: bool,
        serving: Option<Serving>,
    ) -> Result<Arc<ServiceDirectory>> {
        let streams = make_folder(&root, "streams")?;
        let control_name = if is_new { NEW_CONTROL } else { CONTROL };
        let memory = SharedMemory::open(memory, control_name, Room::of(&settings))?;
        let control = memory.control().clone();
        let (client, slot) = slots.take(&control)?;
        let may_hold = has_streams(&streams)?;
        let nvram = match &settings.nvram {
            Some(nvram) => {
                let own = nvram_of(&root, nvram, &settings, may_hold)?;
                let class = class_of(&own, &settings)?;
                Some((own, class))
            }
            None => None,
        };
        let group = match &nvram {
            None => {
                let device = open_group(&root, settings.group_bytes, may_hold)?;
                if !is_new && newest_header(&device)?.is_none() {
                    // It was made again. The lanes hold all records that are not drained.
                    control.mark_group_unsure();
                }
                Some(device)
            }
            Some(_) => None,
        };
        Ok(Arc::new(ServiceDirectory {
            root,
            streams,
            slots,
            settings,
            memory,
            control,
            client,
            slot,
            has_left: AtomicBool::new(false),
            serving,
            nvram,
            group,
            chunks: Mutex::new(HashMap::new()),
        }))
    }

    /// Whether the directory and the shared memory are still at their paths.
    pub(crate) fn is_current(&self) -> bool {
        let is_there = |folder: &Folder| {
            // A user may have mounted a server there meanwhile, which may never answer.
            let (at_path, open) = (host::cached_stat(folder.path()), rustix::fs::fstat(folder));
            matches!((at_path, open), (Ok(a), Ok(b)) if a.stx_ino == b.st_ino
                && makedev(a.stx_dev_major, a.stx_dev_minor) == b.st_dev)
        };
        is_there(&self.root)
            && is_there(self.memory.folder())
            && match self.memory.folder().stat(CONTROL) {
                Ok(found) => found.is_some(),
                // Something is mounted there. Other errors, such as too many open files, say
                // nothing.
                Err(e) => e.kind() != ErrorKind::PermissionDenied,
            }
    }

    /// Removes the shared memory if no other process has joined and `is_done` says that nothing is
    /// in it. The service directory must not be used after this call.
    pub(crate) fn release_memory(&self, is_done: impl FnOnce() -> Result<bool>) -> Result<()> {
        let is_alone = || !self.slots.is_joined(self.client.slot());
        let control = &self.control;
        let joined_count = || control.joined_count();
        // Not under the lock, which streams are opened under.
        let before = joined_count();
        if !is_alone() || !is_done()? {
            return Ok(());
        }
        let _lock = Lock::take(&self.root, OPEN_LIMIT)?;
        if is_alone() && joined_count() == before {
            let memory = self.memory.folder();
            // Without this file the rest is nothing, wherever this ends.
            memory.remove(CONTROL).map_err(within(memory, CONTROL))?;
            // A process that waits for the lock makes new memory. It must not see this process as a
            // user.
            self.leave()?;
            remove_memory(memory)?;
            // Lowers the kept limit to the first USN that was not given: the next memory begins
            // there. Until the memory is removed, its users give USNs up to the old limit.
            let base = control.usn_base();
            let limit = control.usn_limit();
            let now = clock::usn_at(base, clock::monotonic_ns());
            let given = now.max(control.highest_usn());
            // Not synced: the previous limit is not lower, so it is valid, too.
            if let Err(e) = self.write_usn_limit(given.saturating_add(1).min(limit), false) {
                tracing::warn!("the limit of USNs that is kept stays: {e}");
            }
        }
        Ok(())
    }

    /// Leaves the service. No file of the directory and of the shared memory may be used after this
    /// call, and no word be changed.
    pub(crate) fn leave(&self) -> Result<()> {
        self.has_left.store(true, Ordering::Release);
        rustix::fs::flock(&self.slot, FlockOperation::Unlock)
            .map_err(|e| within(&self.root, "clients")(e.into()))
    }

    /// The directory of a stream; `None`: there is none.
    fn stream_folder(&self, name: &StreamName) -> Result<Option<Folder>> {
        match self.streams.folder(name.as_str()) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(within(&self.streams, name.as_str())),
        }
    }

    /// Writes the limit of USNs, durably if `is_durable`. It overwrites the previous limit, which
    /// has as many bytes, so a power cut leaves one of the two.
    fn write_usn_limit(&self, limit: u64, is_durable: bool) -> Result<()> {
        let text = format!("{limit:020}\n");
        let failed = within(&self.root, USN_LIMIT);
        let found = self.root.stat(USN_LIMIT).map_err(&failed)?;
        if !found.is_some_and(|found| usize::try_from(found.st_size) == Ok(text.len())) {
            return write_whole(&self.root, USN_LIMIT, text.as_bytes());
        }
        let file = self.root.file(USN_LIMIT, Access::ReadWrite).map_err(&failed)?;
        file.write_all_at(text.as_bytes(), 0).map_err(&failed)?;
        if is_durable { file.sync_data().map_err(failed) } else { Ok(()) }
    }

    /// The directory of the chunks.
    fn chunk_folder(&self) -> &Folder {
        self.nvram.as_ref().map_or(self.memory.folder(), |(own, _)| own)
    }

    fn chunk_len_bytes(&self) -> u64 {
        DATA_OFFSET + self.settings.chunk_bytes
    }

    /// A number that no stream had since the memory was made, and whose index among
    /// [`STREAM_COUNT_MAX`] no stream has. The caller holds the lock.
    fn new_id(&self) -> Result<u32> {
        let control = &self.control;
        let index = |id: u64| id % STREAM_COUNT_MAX as u64;
        let first = control.next_stream();
        let mut taken = HashSet::new();
        if first >= STREAM_COUNT_MAX as u64 {
            taken.extend(self.streams()?.iter().map(|(_, meta)| index(meta.id.into())));
        }
        let id = (first..first + STREAM_COUNT_MAX as u64).find(|&id| !taken.contains(&index(id)));
        match id.map(|id| (id, u32::try_from(id))) {
            Some((id, Ok(number))) => {
                control.set_next_stream(id + 1);
                Ok(number)
            }
            Some(_) => {
                Err(LogError::Usage("all numbers of streams were used: use another log".into()))
            }
            None => Err(Refusal::TooManyStreams { limit: STREAM_COUNT_MAX }.into()),
        }
    }

    /// What the memory of the chunks survives.
    fn chunk_class(&self) -> Durability {
        self.nvram().unwrap_or(Durability::Process)
    }
}

/// Claims the directory for the daemon that will listen at `socket`.
fn serving(root: &Folder, slots: &Slots, socket: &Path) -> Result<Serving> {
    if slots.is_joined(None) {
        let directory = root.path().display();
        let text = format!("{directory}: processes that opened it themselves use it");
        return Err(LogError::InUse(text));
    }
    Serving::claim(root, socket)
}

/// What is known of the stream in `folder`; `None`: it is being made, or removed.
pub(crate) fn meta_in(folder: &Folder) -> Result<Option<StreamMeta>> {
    let text = folder.read(META).map_err(within(folder, META))?;
    text.map(|text| parse(&folder.at(META), &text)).transpose()
}

/// The names of the streams. Each has a directory in `streams`.
fn names_in(streams: &Folder) -> Result<Vec<StreamName>> {
    let names = streams.names().map_err(within(streams, ""))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Whether the service has streams.
fn has_streams(streams: &Folder) -> Result<bool> {
    for name in names_in(streams)? {
        let found = streams.folder(name.as_str()).and_then(|folder| folder.stat(META));
        match found {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            found => {
                if found.map_err(within(streams, name.as_str()))?.is_some() {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

impl Host for ServiceDirectory {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn control(&self) -> Control {
        self.control.clone()
    }

    fn client(&self) -> Client {
        self.client
    }

    fn is_dead(&self, client: Client) -> bool {
        let Some(slot) = client.slot().filter(|&slot| slot < CLIENT_COUNT_MAX) else { return true };
        if self.control.client_in(slot) != client {
            return true;
        }
        !self.slots.is_taken(slot)
    }

    fn is_memory_gone(&self) -> bool {
        self.memory.is_gone()
    }

    fn nvram(&self) -> Option<Durability> {
        self.nvram.as_ref().map(|(_, class)| *class)
    }

    fn lane_words(&self, stream: StreamId) -> Result<LaneWords> {
        let words = SharedWords::of_file(self.memory.lane_file(stream)?, LaneWords::COUNT)?;
        Ok(LaneWords::new(Arc::new(words)))
    }

    fn chunk(&self, index: usize) -> Result<Arc<dyn Nvram>> {
        let holder = self.control.chunk_holder(index);
        let mut chunks = self.chunks.lock();
        if let Some((for_holder, memory)) = chunks.get(&index)
            && *for_holder == holder
        {
            return Ok(memory.clone());
        }
        let path = self.chunk_folder().at(&chunk_name(index));
        let (fd, class) = (self.chunk_file(index)?, self.chunk_class());
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
        let len_bytes = self.chunk_len_bytes();
        Ok(match &self.nvram {
            Some((own, _)) => open_reserved(own, &chunk_name(index), len_bytes)?.into(),
            None => self.memory.chunk_file(index, len_bytes)?.into(),
        })
    }

    fn shorten_chunk(&self, index: usize) -> Result<bool> {
        let (folder, name) = (self.chunk_folder(), chunk_name(index));
        let len_bytes = self.chunk_len_bytes();
        match folder.file(&name, Access::ReadWrite) {
            Ok(file) if file.metadata().is_ok_and(|found| found.len() > len_bytes) => {
                file.set_len(len_bytes).map_err(within(folder, &name))?;
                Ok(true)
            }
            // There need not be one.
            _ => Ok(false),
        }
    }

    fn replace_chunk(&self, index: usize) -> Result<()> {
        let (folder, name) = (self.chunk_folder(), chunk_name(index));
        let new = format!("{name}.new");
        let failed = within(folder, &name);
        remove_if_there(folder, &new)?;
        let file = open_or_make(folder, &new, self.chunk_len_bytes())?;
        let old = open_or_make(folder, &name, 0)?;
        if self.nvram.is_some() {
            file.sync_all().map_err(&failed)?;
        }
        folder.rename(&new, &name).map_err(&failed)?;
        if self.nvram.is_some() {
            folder.sync().map_err(&failed)?;
        }
        self.chunks.lock().remove(&index);
        // Processes that still map the old file have no use for it, so its memory is freed.
        old.set_len(0).map_err(&failed)
    }

    fn remote_words(&self, stream: StreamId, serial: u64) -> Result<Arc<RemoteWords>> {
        Ok(Arc::new(RemoteWords::open(self.memory.folder(), stream, serial)?))
    }

    fn make_remote_words(&self, stream: StreamId, serial: u64, words: &LaneWords) -> Result<File> {
        self.memory.make_remote_words(stream, serial, words)
    }

    fn remote_leases(&self) -> Result<Vec<(StreamId, u64)>> {
        leases_in(self.memory.folder())
    }

    fn group(&self) -> Option<&dyn BlockDevice> {
        self.group.as_ref().map(|disk| disk as &dyn BlockDevice)
    }

    fn streams(&self) -> Result<Vec<(StreamName, StreamMeta)>> {
        let mut streams = Vec::new();
        for name in names_in(&self.streams)? {
            if let Some(meta) = self.stream(&name)? {
                streams.push((name, meta));
            }
        }
        Ok(streams)
    }

    fn stream(&self, name: &StreamName) -> Result<Option<StreamMeta>> {
        self.stream_folder(name)?.map_or(Ok(None), |folder| meta_in(&folder))
    }

    fn create_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<StreamMeta> {
        let _lock = Lock::take(&self.root, USE_LIMIT)?;
        if let Some(meta) = self.stream(name)? {
            return Ok(meta);
        }
        // Left by a removal, or a making, that was cut.
        if self.stream_folder(name)?.is_some() {
            let removed = self.streams.remove_folder(name.as_str());
            removed.map_err(within(&self.streams, name.as_str()))?;
        }
        let meta = StreamMeta { id: self.new_id()?, ..meta.clone() };
        let folder = make_folder(&self.streams, name.as_str())?;
        write_whole(&folder, META, &serde_json::to_vec_pretty(&meta).expect("plain data"))?;
        self.streams.sync().map_err(within(&self.streams, ""))?;
        Ok(meta)
    }

    fn keep_stream(&self, name: &StreamName) -> Result<()> {
        if let Some(folder) = self.stream_folder(name)? {
            folder.sync().map_err(within(&folder, ""))?;
        }
        self.streams.sync().map_err(within(&self.streams, ""))
    }

    fn remove_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<()> {
        let _lock = Lock::take(&self.root, USE_LIMIT)?;
        let failed = within(&self.streams, name.as_str());
        let folder = self.streams.folder(name.as_str()).map_err(&failed)?;
        folder.remove(META).and_then(|()| folder.sync()).map_err(within(&folder, META))?;
        self.streams.remove_folder(name.as_str()).map_err(&failed)?;
        self.memory.remove_lane(StreamId(meta.id))
    }

    fn store(&self, name: &StreamName) -> Result<Arc<dyn FileStore>> {
        Ok(Arc::new(Directory::within(&self.streams, name.as_str(), 0o600)?))
    }

    fn usn_limit(&self) -> Result<u64> {
        let text = self.root.read(USN_LIMIT).map_err(within(&self.root, USN_LIMIT))?;
        let Some(text) = text else { return Ok(0) };
        let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
        let path = self.root.at(USN_LIMIT);
        number.ok_or_else(|| LogError::Incompatible(format!("{} holds no number", path.display())))
    }

    fn keep_usn_limit(&self, limit: u64) -> Result<()> {
        self.write_usn_limit(limit, true)
    }

    fn locked(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _lock = Lock::take(&self.root, USE_LIMIT)?;
        f()
    }
}

impl Drop for ServiceDirectory {
    /// When the last process leaves, it frees the memory of chunks that belong to no stream. The
    /// words, some kilobytes, stay, so the next process has nothing to recover. Memory that a
    /// client of a daemon may have mapped stays, too.
    fn drop(&mut self) {
        if self.nvram.is_some() || self.has_left.load(Ordering::Acquire) {
            return;
        }
        // Does not wait: the process that has the lock is joining and will use the chunks.
        let Ok(Some(_lock)) = Lock::take_if_free(&self.root) else { return };
        if self.slots.is_joined(self.client.slot()) {
            return;
        }
        let control = &self.control;
        for index in 0..self.settings.chunk_count as usize {
            if control.chunk_state(index) == ChunkState::Free && control.chunk_holder(index) == 0 {
                self.memory.remove_chunk(index);
            }
        }
    }
}
