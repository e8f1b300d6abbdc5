//! Writes a database's stream: the lease of its writer, its header, its records and its end.
//!
//! A writer takes the lease, appends, and leaves the header for the next writer. Every function
//! that changes the header is called with the lease.

use std::time::{Duration, Instant};

use log::{LogError, Lsn};

use crate::failure::Failure;
use crate::format::base::{Base, encode_base};
use crate::stream::header::{SharedHeader, StreamHeader};
use crate::stream::stamped::Stream;

/// How long to wait for the lease. A process normally holds it for microseconds.
const LEASE_WAIT: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

/// The stream's lease, for as long as this lives.
pub struct Lease<'a>(&'a Stream);

impl Lease<'_> {
    /// Takes the lease; waits until no other process holds it.
    pub fn take(stream: &Stream) -> Result<Lease<'_>, Failure> {
        let mut busy_since = None;
        loop {
            match stream.acquire() {
                Ok(()) => return Ok(Lease(stream)),
                Err(LogError::Busy(_))
                    if busy_since.get_or_insert_with(Instant::now).elapsed() < LEASE_WAIT =>
                {
                    std::thread::sleep(Duration::from_micros(20));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Appends a record. Returns its LSN, or `None` if the log's pool is too small for the record.
pub fn append_if_it_fits(stream: &Stream, record: &[u8]) -> Result<Option<u64>, Failure> {
    match stream.append(record) {
        Ok(lsn) => Ok(Some(lsn.0)),
        Err(LogError::TooLarge { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Appends a record. Returns its LSN.
pub fn append(stream: &Stream, record: &[u8]) -> Result<u64, Failure> {
    Ok(stream.append(record)?.0)
}

/// The content of the stream's header.
pub fn find_header(stream: &Stream) -> Result<SharedHeader, Failure> {
    Ok(match StreamHeader::read(&stream.header()?) {
        SharedHeader::Whole(shared) if shared.end_lsn != stream.appended().0 => SharedHeader::Torn,
        found => found,
    })
}

/// Writes the header, with the state after the last record. The caller has the lease.
pub fn leave(stream: &Stream, shared: StreamHeader) -> StreamHeader {
    let shared = StreamHeader { end_lsn: stream.appended().0, ..shared };
    stream.leave(shared);
    shared
}

/// The stream's header. If it is not valid, a header without a generation.
pub fn header_or_default(stream: &Stream) -> Result<StreamHeader, Failure> {
    Ok(match find_header(stream)? {
        SharedHeader::Whole(shared) => shared,
        SharedHeader::Unset | SharedHeader::Torn => StreamHeader::default(),
    })
}

/// Records durably that no earlier record counts any more. The caller has the lease.
pub fn close(stream: &Stream) -> Result<(), Failure> {
    let lsn = append_closed(stream)?;
    let shared =
        leave(stream, StreamHeader { base_lsn: lsn, last_lsn: lsn, ..StreamHeader::default() });
    stream.sync(Lsn(lsn))?;
    // A later truncation frees what this one did not.
    let _ = truncate(stream, &shared);
    Ok(())
}

/// Appends *closed*, without a sync. The caller has the lease. If the record needs more shared
/// memory than there is, the earlier ones go to the log's files first, which frees theirs.
pub fn append_closed(stream: &Stream) -> Result<u64, Failure> {
    let closed = encode_base(&Base::closed());
    match append(stream, &closed) {
        Err(Failure::Log(LogError::NoMemory(_))) => {
            stream.flush()?;
            append(stream, &closed)
        }
        appended => appended,
    }
}

/// Truncates the log before the first record that counts. Does nothing until the last record that
/// the header names is durable. The record that voids the earlier ones was appended before it, and
/// then is durable, too.
pub fn truncate(stream: &Stream, shared: &StreamHeader) -> Result<(), Failure> {
    let base = Lsn(shared.base_lsn);
    if stream.head() < base && stream.end() > Lsn(shared.last_lsn) {
        stream.truncate_before(base)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;
    use std::process::Command;

    use rustix::mount::UnmountFlags;

    use super::*;
    use crate::stream::stamp::Stamp;

    /// More than a chunk of the log's pool.
    const LARGE_BYTES: usize = 200 << 10;

    /// A tmpfs, unmounted when this is dropped.
    struct SmallMemory(tempfile::TempDir);

    impl SmallMemory {
        fn mount() -> SmallMemory {
            let memory = SmallMemory(tempfile::tempdir().expect("directory"));
            let mut command = Command::new("mount");
            let command = command.args(["-t", "tmpfs", "-o", "size=4m", "none"]);
            assert!(command.arg(memory.path()).status().expect("mount").success());
            memory
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        /// Takes all that is left.
        fn fill(&self) {
            let mut file = std::fs::File::create(self.path().join("filler")).expect("file");
            while file.write_all(&[1; 4096]).is_ok() {}
        }
    }

    impl Drop for SmallMemory {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
        }
    }

    /// A transaction failed whose period began when the memory was full, and the last chunk.
    #[test]
    fn regression_a_period_begins_at_the_end_of_a_chunk_while_the_memory_is_full() {
        onejournal_testing::own_process!();
        if !onejournal_testing::can_mount() {
            return;
        }
        let memory = SmallMemory::mount();
        let home = tempfile::tempdir().expect("directory");
        let options = log::Options { memory: memory.path().into(), ..log::Options::default() };
        let log = log::Log::open(home.path().join("log"), &options).expect("open");
        let stream = Stream::new(log.stream("s").expect("stream"), Stamp::default());
        // Chunks before the last one, which are free when their records are in the log's files.
        for _ in 0..3 {
            append(&stream, &[7; LARGE_BYTES]).expect("appended");
        }
        memory.fill();
        let closed = encode_base(&Base::closed());
        let full = (0..LARGE_BYTES).find_map(|_| append(&stream, &closed).err());
        let full = full.expect("the last chunk is full at some time");
        assert!(matches!(full, Failure::Log(LogError::NoMemory(_))), "{full}");
        let lsn = append_closed(&stream).expect("the chunks before it have room");
        stream.sync(Lsn(lsn)).expect("synced");
    }
}
