//! The files of a service's shared memory, and whether other processes still find them.
//!
//! Programs remove shared memory under the processes that use it: logind that of a user who has
//! logged out (`RemoveIPC=yes`), or a person who tidies up. What is mapped stays usable. But a
//! process that opens such a file later must not make another one of the same name: its words or
//! records would not be those of the other processes. So three rules hold:
//!
//! 1. Within an incarnation each file is made once. The service's words say which files were made.
//! 2. The memory is *gone* when the name `control` does not lead to the words that this process has
//!    mapped. No process begins an operation in it then.
//! 3. A process that misses a file that was made removes that name, so that the memory is gone for
//!    all.
//!
//! The module `embedded` says how a process goes on whose memory is gone.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use device::SharedWords;
use host::{Access, Folder};

use crate::directory::incarnation::CONTROL;
use crate::directory::room::Room;
use crate::error::{LogError, Result};
use crate::faults::{self, Fault};
use crate::media::files::{open_reserved, remove_if_there, reserve, within};
use crate::media::open::chunk_name;
use crate::types::StreamId;
use crate::words::client_copy::make_remote_words;
use crate::words::{Control, FileMark, LaneWords};

/// A service's shared memory.
pub(crate) struct SharedMemory {
    folder: Folder,
    control: Control,
    /// Device and inode of the file with the service's words.
    id: (u64, u64),
    room: Room,
}

impl SharedMemory {
    /// Opens the memory in `folder`, whose words are in the file `control_name`. The file is made
    /// if there is none.
    pub(crate) fn open(folder: Folder, control_name: &str, room: Room) -> Result<SharedMemory> {
        let len_bytes = Control::COUNT as u64 * 8;
        let file = open_reserved(&folder, control_name, len_bytes);
        let file = file.map_err(|e| room.or_full(e, &folder, len_bytes))?;
        let found = file.metadata().map_err(within(&folder, control_name))?;
        let words = SharedWords::of_file(&file, Control::COUNT)?;
        let control = Control::new(Arc::new(words));
        Ok(SharedMemory { folder, control, id: (found.dev(), found.ino()), room })
    }

    /// Its directory.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The service's words.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Whether other processes cannot find the memory any more.
    pub(crate) fn is_gone(&self) -> bool {
        match self.folder.stat(CONTROL) {
            Ok(Some(found)) => (found.st_dev, found.st_ino) != self.id,
            Ok(None) => true,
            Err(e) => e.kind() == ErrorKind::NotFound,
        }
    }

    /// The file of a lane's words. Makes it if there was none.
    pub(crate) fn lane_file(&self, stream: StreamId) -> Result<File> {
        let made = self.control.lane_mark(stream);
        self.file(&lane_name(stream.0), LaneWords::COUNT as u64 * 8, &made)
    }

    /// Removes the file of a lane's words, whose stream was removed.
    pub(crate) fn remove_lane(&self, stream: StreamId) -> Result<()> {
        self.control.lane_mark(stream).clear();
        remove_if_there(&self.folder, &lane_name(stream.0))
    }

    /// The file of a chunk. Makes it if there was none.
    pub(crate) fn chunk_file(&self, index: usize, len_bytes: u64) -> Result<File> {
        self.file(&chunk_name(index), len_bytes, &self.control.chunk_mark(index))
    }

    /// Removes the file of a chunk that no process uses.
    pub(crate) fn remove_chunk(&self, index: usize) {
        self.control.chunk_mark(index).clear();
        // There need not be one. It is made again when it is allocated.
        let _ = self.folder.remove(&chunk_name(index));
    }

    /// Opens a file, and makes it only if that was not done in this incarnation.
    fn file(&self, name: &str, len_bytes: u64, mark: &FileMark) -> Result<File> {
        if mark.is_set() && !faults::is(Fault::MissingFileMadeAgain) {
            let file = self.folder.file(name, Access::ReadWrite);
            let file = file.map_err(|e| self.missing(name, e))?;
            let reserved = reserve(&self.folder, name, &file, len_bytes);
            return reserved.map(|()| file).map_err(|e| self.or_full(e, len_bytes));
        }
        let file = open_reserved(&self.folder, name, len_bytes);
        let file = file.map_err(|e| self.or_full(e, len_bytes))?;
        mark.set();
        // A process that saw no mark, because the file was removed before, has made another one.
        match file.metadata().map_err(within(&self.folder, name))?.nlink() {
            0 => Err(self.missing(name, ErrorKind::NotFound.into())),
            _ => Ok(file),
        }
    }

    /// Makes the words of a client's lease, a copy of the lane's words.
    pub(crate) fn make_remote_words(
        &self,
        stream: StreamId,
        serial: u64,
        words: &LaneWords,
    ) -> Result<File> {
        let made = make_remote_words(&self.folder, stream, serial, words);
        made.map_err(|e| self.or_full(e, LaneWords::COUNT as u64 * 8))
    }

    /// The error of a file that takes `len_bytes`. If there is no room for it, the error says so.
    fn or_full(&self, error: LogError, len_bytes: u64) -> LogError {
        self.room.or_full(error, &self.folder, len_bytes)
    }

    /// The error of a file that cannot be opened. If it was removed, the memory is gone for all
    /// processes (rule 3).
    fn missing(&self, name: &str, error: std::io::Error) -> LogError {
        if error.kind() == ErrorKind::NotFound {
            // If it cannot be removed, the next process that misses the file tries again.
            let _ = self.folder.remove(CONTROL);
        }
        within(&self.folder, name)(error)
    }
}

/// The file of a lane's words.
fn lane_name(stream: u32) -> String {
    format!("lane-{stream}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory::TestDirectory;

    /// What a process finds in the end that opens a stream when only the file of its lane was
    /// removed. The records 0 to 2 are appended and synced.
    fn records_of_a_lane_without_a_name() -> Vec<u8> {
        let test_dir = TestDirectory::new();
        let (log, other) = (test_dir.open(), test_dir.open());
        let stream = log.stream("a").expect("stream");
        let append = |stream: &crate::Stream, number: u8| {
            let appended = stream.append(&[number]).and_then(|lsn| stream.sync(lsn));
            stream.release();
            appended
        };
        append(&stream, 0).expect("append");
        let memory = std::fs::read_dir(test_dir.memory()).expect("memory").flatten();
        let lane = memory.map(|entry| entry.path().join("lane-0")).find(|path| path.exists());
        std::fs::remove_file(lane.expect("a lane")).expect("remove");
        let same = other.stream("a").expect("stream");
        // With the fault some of these fail, later or sooner.
        let _ = append(&same, 1);
        let _ = append(&stream, 2);
        let _ = stream.flush();
        drop((stream, same, log, other));
        test_dir.reboot();
        let log = test_dir.open();
        let stream = log.stream("a").expect("stream");
        let reader = stream.read_from(stream.head()).expect("reader");
        reader.map_while(Result::ok).flat_map(|record| record.payload).collect()
    }

    #[test]
    fn a_missing_file_is_not_made_again() {
        assert_eq!(records_of_a_lane_without_a_name(), [0, 1, 2]);
    }

    #[test]
    fn canary_two_lanes_of_one_stream_lose_records() {
        let made_again = Fault::MissingFileMadeAgain;
        let lose = || std::panic::catch_unwind(records_of_a_lane_without_a_name);
        let found = fault::with(made_again, lose);
        assert!(found.map_or(true, |found| found != [0, 1, 2]), "two lanes are one");
    }
}
