//! The copy of a lane's words that a client of the daemon maps, as the serving process reads it.
//!
//! The copy is made when the lease is given, with the layout of the lane's own words. From then on
//! the client may write anything to it. `report` decides what is taken over.
//!
//! The serving process reads the file and never maps it. A client may make the file shorter, and a
//! load after its end would end the process.
//!
//! The client's descriptor holds a lock on the file. The lock ends with the client's process, and
//! so does the lease, also while no daemon runs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use host::{Access, Folder};
use rustix::fs::FlockOperation;

use super::lane::{Abort, LaneWords};
use super::limits::STREAM_HEADER_BYTES;
use super::report::ClientWords;
use crate::media::files::{remove_if_there, within};
use crate::{LogError, Result, StreamId};

/// One client's words.
pub(crate) struct RemoteWords {
    /// Never the client's own descriptor: flags of that are shared with it.
    file: File,
    memory: Folder,
    name: String,
    serial: u64,
}

/// Bytes of the file.
const WORDS_BYTES: u64 = LaneWords::COUNT as u64 * 8;

impl RemoteWords {
    /// Opens the words of lease `serial` of a stream, in the shared memory.
    pub(crate) fn open(memory: &Folder, stream: StreamId, serial: u64) -> Result<RemoteWords> {
        let name = words_name(stream, serial);
        let file = memory.file(&name, Access::ReadWrite).map_err(within(memory, &name))?;
        Ok(RemoteWords { file, memory: memory.clone(), name, serial })
    }

    /// Number of the lease.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The stream header that the client left.
    pub(crate) fn header(&self) -> Result<[u8; STREAM_HEADER_BYTES]> {
        let mut header = [0; STREAM_HEADER_BYTES];
        let at = LaneWords::STREAM_HEADER as u64 * 8;
        self.file.read_exact_at(&mut header, at).map_err(|e| self.failed(&e))?;
        Ok(header)
    }

    /// Tells the client that nothing is accepted any more.
    pub(crate) fn tell_aborted(&self, why: Abort) {
        // A client that has cut its words does not want to know.
        let _ = self.file.write_all_at(&(why as u64).to_ne_bytes(), LaneWords::ABORTED as u64 * 8);
    }

    /// Whether the client's process still has its descriptor.
    pub(crate) fn is_alive(&self) -> Result<bool> {
        // An open of its own, because a lock belongs to that.
        let file = match self.memory.file(&self.name, Access::ReadOnly) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(within(&self.memory, &self.name)(e)),
        };
        Ok(rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }

    /// Cuts the file to its length, if its client made it longer. Returns whether it was longer.
    pub(crate) fn shorten(&self) -> Result<bool> {
        let failed = within(&self.memory, &self.name);
        let is_longer = self.file.metadata().map_err(&failed)?.len() > WORDS_BYTES;
        if is_longer {
            self.file.set_len(WORDS_BYTES).map_err(&failed)?;
        }
        Ok(is_longer)
    }

    /// Removes the file.
    pub(crate) fn remove(&self) {
        // After a failure, the file is removed with the memory or with the stream.
        let _ = remove_if_there(&self.memory, &self.name);
    }

    /// An error that blames the client, because this is not a failure of a device.
    fn failed(&self, error: &io::Error) -> LogError {
        let path = self.memory.at(&self.name);
        LogError::Incompatible(format!("the words of a client, {}: {error}", path.display()))
    }
}

impl ClientWords for RemoteWords {
    fn word(&self, index: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, index as u64 * 8).map_err(|e| self.failed(&e))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

fn words_name(stream: StreamId, serial: u64) -> String {
    format!("client-{}-{serial}", stream.0)
}

/// The leases whose words are in `memory`.
pub(crate) fn leases_in(memory: &Folder) -> Result<Vec<(StreamId, u64)>> {
    let mut leases = Vec::new();
    for name in memory.names().map_err(within(memory, ""))? {
        let numbers = name.strip_prefix("client-").and_then(|name| name.split_once('-'));
        let Some((stream, serial)) = numbers else { continue };
        if let (Ok(stream), Ok(serial)) = (stream.parse(), serial.parse()) {
            leases.push((StreamId(stream), serial));
        }
    }
    Ok(leases)
}

/// Makes the words of lease `serial`, with the content of `words`. Returns their open file, which
/// is locked. The caller sends it to the client and closes it.
pub(crate) fn make_remote_words(
    memory: &Folder,
    stream: StreamId,
    serial: u64,
    words: &LaneWords,
) -> Result<File> {
    let name = words_name(stream, serial);
    let at = within(memory, &name);
    let file = memory.new_file(&name, 0o600).map_err(&at)?;
    file.write_all_at(&words.copy_for_client(), 0).map_err(&at)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| at(e.into()))?;
    Ok(file)
}
