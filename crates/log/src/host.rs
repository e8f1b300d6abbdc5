//! What a service runs on: its directory, its shared memory, its group log, and the other processes
//! that use it.
//!
//! `directory` implements it for real. `sim` implements it in memory, so that the whole service
//! runs in a crash enumeration.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use device::{BlockDevice, Durability, FileStore, Nvram};
use serde::{Deserialize, Serialize};

use crate::format::record::Identity;
use crate::words::client_copy::RemoteWords;
use crate::words::{Client, Control, LaneWords};
use crate::{LogError, Result, StreamId, StreamName};

/// The settings that a service was made with. They are stored in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the layout: 1.
    pub format: u32,
    /// Names the service, random: 32 hexadecimal digits.
    pub uuid: String,
    /// Directory on NVRAM that contains the directory of the chunks. `None`: chunks are ordinary
    /// memory, and a group log on the directory's disk makes appends durable.
    pub nvram: Option<std::path::PathBuf>,
    /// What the user said that the NVRAM survives: `power`, `reboot` or `process`.
    pub durability: Option<String>,
    /// Data bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks in the pool.
    pub chunk_count: u32,
    /// Most bytes of a log file. A file with a single record may be longer.
    pub segment_bytes: u64,
    /// Bytes of the group log.
    pub group_bytes: u64,
    /// The directory that it was made in, which tells it from a copy. `None`: a service that no
    /// directory holds.
    #[serde(default)]
    pub directory: Option<DirectoryId>,
    /// The UUIDs of the logs that it is a copy of, the last one last. A copy gets a UUID of its own
    /// when it is opened.
    #[serde(default)]
    pub copied_from: Vec<String>,
    /// What the directory on NVRAM is named by: the UUID that the log was made with, for a copy.
    /// `None`: its UUID.
    #[serde(default)]
    pub nvram_name: Option<String>,
}

/// Tells a directory from its copies, also after a restart of the machine, when devices have other
/// numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryId {
    /// Number of its inode.
    pub inode: u64,
    /// Nanoseconds since 1970; `None` where the file system does not know.
    pub born_ns: Option<u64>,
}

impl Settings {
    /// What the directory on NVRAM is named by.
    pub(crate) fn nvram_name(&self) -> &str {
        self.nvram_name.as_ref().unwrap_or(&self.uuid)
    }

    /// Size of the pool in bytes.
    pub fn pool_bytes(&self) -> u64 {
        self.chunk_bytes.saturating_mul(self.chunk_count.into())
    }
}

/// What is known of a stream. It is stored in the stream's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMeta {
    /// Its number.
    pub id: u32,
    /// Distinguishes its records from those of other streams.
    pub salt: u64,
    /// User it belongs to.
    pub uid: u32,
    /// Group it belongs to.
    pub gid: u32,
    /// Permission bits: who may read (4) and write (2), for owner, group, others.
    pub mode: u32,
    /// Bytes that its log files may take; 0: any number.
    pub quota_bytes: u64,
}

impl StreamMeta {
    pub(crate) fn identity(&self) -> Identity {
        Identity { stream: StreamId(self.id), salt: self.salt }
    }
}

/// Where a service lives.
pub(crate) trait Host: Send + Sync {
    fn settings(&self) -> &Settings;

    /// The service's words.
    fn control(&self) -> Control;

    /// This process as a client of the service.
    fn client(&self) -> Client;

    /// Whether `client`, another process, has left or died.
    fn is_dead(&self, client: Client) -> bool;

    /// Whether the shared memory was removed, so that other processes cannot find it.
    fn is_memory_gone(&self) -> bool {
        false
    }

    /// What an append on a lane survives before it is synced. `None`: the lanes are ordinary
    /// memory.
    fn nvram(&self) -> Option<Durability>;

    /// The words of a lane. They are zeros if the lane is new.
    fn lane_words(&self, stream: StreamId) -> Result<LaneWords>;

    /// The memory of a chunk.
    fn chunk(&self, index: usize) -> Result<Arc<dyn Nvram>>;

    /// The file of a chunk, open for reading and writing. It is sent to a client.
    fn chunk_file(&self, index: usize) -> Result<OwnedFd> {
        Err(LogError::Incompatible(format!("chunk {index} cannot be given to a client")))
    }

    /// Cuts the chunk's file to its length, if a client made it longer. Returns whether it was
    /// longer.
    fn shorten_chunk(&self, _index: usize) -> Result<bool> {
        Ok(false)
    }

    /// Replaces the chunk's file by a new one of zeros, durably on NVRAM, and cuts the old file to
    /// length 0.
    fn replace_chunk(&self, index: usize) -> Result<()>;

    /// The words of the client that has lease `serial` of the stream.
    fn remote_words(&self, stream: StreamId, serial: u64) -> Result<Arc<RemoteWords>> {
        let text = format!("{stream}: lease {serial} was given by a daemon");
        Err(LogError::Incompatible(text))
    }

    /// Makes the words of lease `serial`, a copy of the lane's words. The file is sent to a client.
    fn make_remote_words(&self, stream: StreamId, serial: u64, _words: &LaneWords) -> Result<File> {
        let text = format!("{stream}: lease {serial} cannot be given to a client");
        Err(LogError::Incompatible(text))
    }

    /// The leases of clients whose words exist.
    fn remote_leases(&self) -> Result<Vec<(StreamId, u64)>> {
        Ok(Vec::new())
    }

    /// The group log, where lanes are ordinary memory.
    fn group(&self) -> Option<&dyn BlockDevice>;

    /// All streams.
    fn streams(&self) -> Result<Vec<(StreamName, StreamMeta)>>;

    /// The stream `name`, if there is one.
    fn stream(&self, name: &StreamName) -> Result<Option<StreamMeta>> {
        let streams = self.streams()?;
        Ok(streams.into_iter().find(|(found, _)| found == name).map(|(_, meta)| meta))
    }

    /// Makes a stream, durably. If another process has made it in the meantime, returns that
    /// stream.
    fn create_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<StreamMeta>;

    /// Makes it durable that a stream exists or does not exist. The process that made or removed
    /// the stream may have died before that was durable.
    fn keep_stream(&self, name: &StreamName) -> Result<()>;

    /// Removes a stream durably. The caller frees its chunks.
    fn remove_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<()>;

    /// The directory of a stream's log files.
    fn store(&self, name: &StreamName) -> Result<Arc<dyn FileStore>>;

    /// The stored limit of USNs. 0 if there is none.
    fn usn_limit(&self) -> Result<u64>;

    /// Stores the limit of USNs durably.
    fn keep_usn_limit(&self, limit: u64) -> Result<()>;

    /// Holds the service's lock while `f` runs. No other process opens, makes or removes streams
    /// then.
    fn locked(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}
