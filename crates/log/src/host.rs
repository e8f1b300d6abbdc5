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

/// What a service was made with; kept in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the layout: 1.
    pub format: u32,
    /// Names the service, random: 32 hexadecimal digits.
    pub uuid: String,
    /// Directory on NVRAM that has the one of the chunks; `None`: they are ordinary memory, and a group log on the
    /// directory's disk makes appends durable.
    pub nvram: Option<std::path::PathBuf>,
    /// What the user called the NVRAM: `power`, `reboot` or `process`.
    pub durability: Option<String>,
    /// Data bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks in the pool.
    pub chunk_count: u32,
    /// Bytes of a log file at most, but for one record.
    pub segment_bytes: u64,
    /// Bytes of the group log.
    pub group_bytes: u64,
}

impl Settings {
    /// Size of the pool in bytes.
    pub fn pool_bytes(&self) -> u64 {
        self.chunk_bytes * u64::from(self.chunk_count)
    }
}

/// What is known of a stream; kept in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMeta {
    /// Its number.
    pub id: u32,
    /// What makes its records its own.
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

    /// Who we are.
    fn client(&self) -> Client;

    /// Whether `client`, which is not ourselves, is attached no more.
    fn is_dead(&self, client: Client) -> bool;

    /// What an append on a lane survives before anything is synced; `None`: the lanes are ordinary
    /// memory.
    fn nvram(&self) -> Option<Durability>;

    /// The words of a lane; zeros when there were none.
    fn lane_words(&self, stream: StreamId) -> Result<LaneWords>;

    /// The memory of a chunk.
    fn chunk(&self, index: usize) -> Result<Arc<dyn Nvram>>;

    /// The file of a chunk, open for reading and writing: to be handed to a client.
    fn chunk_file(&self, index: usize) -> Result<OwnedFd> {
        Err(LogError::Incompatible(format!("chunk {index} cannot be given to a client")))
    }

    /// Cuts the chunk's file to its length, if a client made it longer. Whether it was longer.
    fn shorten_chunk(&self, _index: usize) -> Result<bool> {
        Ok(false)
    }

    /// Gives the chunk a new file of zeros, durably on NVRAM, and cuts the old one to nothing.
    fn replace_chunk(&self, index: usize) -> Result<()>;

    /// The words of the client that has lease `serial` of the stream.
    fn remote_words(&self, stream: StreamId, serial: u64) -> Result<Arc<RemoteWords>> {
        let text = format!("{stream}: lease {serial} was given by a daemon");
        Err(LogError::Incompatible(text))
    }

    /// Makes the words of lease `serial`, a copy of the lane's: to be handed to a client.
    fn make_remote_words(&self, stream: StreamId, serial: u64, _words: &LaneWords) -> Result<File> {
        let text = format!("{stream}: lease {serial} cannot be given to a client");
        Err(LogError::Incompatible(text))
    }

    /// The leases of clients whose words there are.
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

    /// Makes a stream, durably. Another process may have made it meanwhile: then it is that one.
    fn create_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<StreamMeta>;

    /// Makes the presence or absence of a stream durable. The process that made or removed it may have
    /// died before it was.
    fn keep_stream(&self, name: &StreamName) -> Result<()>;

    /// Removes a stream; when this returns it stays removed. Its chunks are the caller's affair.
    fn remove_stream(&self, name: &StreamName, meta: &StreamMeta) -> Result<()>;

    /// The directory of a stream's log files.
    fn store(&self, name: &StreamName) -> Result<Arc<dyn FileStore>>;

    /// The limit of USNs that was kept; 0 when there is none.
    fn usn_limit(&self) -> Result<u64>;

    /// Keeps the limit of USNs, durably.
    fn keep_usn_limit(&self, limit: u64) -> Result<()>;

    /// Holds the service's lock while `f` runs. No other process opens, makes or removes streams then.
    fn locked(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}
