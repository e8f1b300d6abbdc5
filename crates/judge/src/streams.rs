//! A stream of the log service with numbered records: how a program writes it, and how it is read
//! again.
//!
//! The number of a record determines everything else: its bytes, whether a sync follows it, and
//! whether the stream is truncated then. So a reader that finds the records `m..=n` knows which
//! truncations can have been requested.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use log::{Log, LogError, Lsn, Options, Stream, names_socket};
use sim::content::pattern;

/// Number of records that a truncation leaves.
const KEPT_COUNT: u64 = 10;

/// Whether record `number` is synced before the step ends.
pub fn is_synced(number: u64) -> bool {
    number % 8 != 3 && number % 8 != 4
}

/// Whether the stream is truncated after it. A sync precedes the truncation, so the removed records
/// are durable.
fn is_truncated(number: u64) -> bool {
    number % 16 == 9
}

/// The first record that must be there if record `last` is the last one.
fn first_kept(last: u64) -> u64 {
    let truncated = (1..=last).rev().find(|number| is_truncated(*number));
    truncated.unwrap_or(0).saturating_sub(KEPT_COUNT).max(1)
}

fn payload(actor: usize, number: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    let len_bytes = [0, 7, 300, 5000, 40_000][rng.usize(..5)];
    let tag = u32::try_from(number).expect("few records") << 4 | u32::try_from(actor).expect("few");
    let mut bytes = tag.to_le_bytes().to_vec();
    bytes.extend(pattern(tag, 0, len_bytes));
    bytes
}

fn text(error: LogError) -> String {
    format!("log: {error}")
}

fn name(actor: usize) -> String {
    format!("stream{actor}")
}

/// Opens the log at `path`: a directory, or the socket of a daemon. It has small files and a small
/// pool, so that both are used up often.
fn open(path: &Path) -> Result<Log, String> {
    let options = Options { pool_bytes: 1 << 20, segment_bytes: 64 << 10, ..Options::default() };
    let log = if names_socket(path) { Log::connect(path) } else { Log::open(path, &options) };
    log.map_err(text)
}

/// A program that writes a stream.
pub struct Writer {
    log: Log,
    stream: Stream,
    actor: usize,
    /// Where the newest records begin, oldest first.
    places: VecDeque<Lsn>,
}

impl Writer {
    /// Opens the stream of an actor. Returns also the number of its records so far.
    pub fn open(path: &Path, actor: usize) -> Result<(Writer, u64), String> {
        let log = open(path)?;
        let stream = log.stream(&name(actor)).map_err(text)?;
        let (places, last) = read(&stream, actor)?;
        Ok((Writer { log, stream, actor, places }, last))
    }

    /// Appends the record with this number, and does what belongs to it.
    pub fn commit(&mut self, number: u64) -> Result<(), String> {
        let lsn = self.stream.append(&payload(self.actor, number)).map_err(text)?;
        self.places.push_back(lsn);
        if is_synced(number) {
            self.stream.sync(lsn).map_err(text)?;
        }
        while self.places.len() as u64 > KEPT_COUNT + 1 {
            self.places.pop_front();
        }
        if is_truncated(number) {
            self.stream.truncate_before(self.places[0]).map_err(text)?;
        }
        Ok(())
    }

    /// Closes its handle of the log.
    pub fn close(self) -> Result<(), String> {
        drop(self.stream);
        self.log.close().map_err(text)
    }
}

/// Reads a stream: where its newest records begin, and the number of the last one. Checks that all
/// are the actor's own, whole, in order, and each once.
fn read(stream: &Stream, actor: usize) -> Result<(VecDeque<Lsn>, u64), String> {
    let mut places = VecDeque::new();
    let mut last_usn = None;
    let mut numbers: Option<(u64, u64)> = None;
    for record in stream.read_from(stream.head()).map_err(text)? {
        let record = record.map_err(text)?;
        let head = record.payload.first_chunk::<4>().ok_or("a record of less than 4 bytes")?;
        let number = u64::from(u32::from_le_bytes(*head) >> 4);
        if record.payload != payload(actor, number) {
            return Err(format!(
                "stream {actor} has a record that is not its own, at {}",
                record.lsn.0
            ));
        }
        if last_usn.is_some_and(|last| record.usn <= last) {
            return Err(format!(
                "stream {actor}, record {number}: its USN is not larger than the one of the record \
                 before"
            ));
        }
        last_usn = Some(record.usn);
        numbers = match numbers {
            Some((_, last)) if number != last + 1 => {
                return Err(format!("stream {actor}: record {number} follows record {last}"));
            }
            Some((first, _)) => Some((first, number)),
            None => Some((number, number)),
        };
        places.push_back(record.lsn);
    }
    let Some((first, last)) = numbers else { return Ok((places, 0)) };
    if first > first_kept(last) {
        let kept = first_kept(last);
        return Err(format!("stream {actor} has records {first} to {last}, and lacks {kept}"));
    }
    Ok((places, last))
}

/// The number of the last record of each stream; 0 if there is no stream.
pub fn count_all(path: PathBuf, actors: usize) -> Result<Vec<u64>, String> {
    let log = open(&path)?;
    let counts = (0..actors).map(|actor| {
        let stream = log.existing_stream(&name(actor)).map_err(text)?;
        stream.map_or(Ok(0), |stream| Ok(read(&stream, actor)?.1))
    });
    let counts: Result<Vec<u64>, String> = counts.collect();
    log.close().map_err(text)?;
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `count` records, and then appends `more` unchanged.
    fn counted(count: u64, more: &[Vec<u8>]) -> Result<Vec<u64>, String> {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("log");
        let (mut writer, found) = Writer::open(&path, 0).unwrap();
        assert_eq!(found, 0);
        (1..=count).for_each(|number| writer.commit(number).unwrap());
        for payload in more {
            let lsn = writer.stream.append(payload).unwrap();
            writer.stream.sync(lsn).unwrap();
        }
        writer.close().unwrap();
        count_all(path, 2)
    }

    #[test]
    fn records_are_counted_after_truncations_too() {
        assert_eq!(counted(0, &[]), Ok(vec![0, 0]));
        assert_eq!(counted(100, &[]), Ok(vec![100, 0]));
    }

    #[test]
    fn a_record_twice_or_of_another_stream_or_missing_is_noticed() {
        assert!(counted(5, &[payload(0, 5)]).unwrap_err().contains("record 5 follows record 5"));
        assert!(counted(5, &[payload(0, 7)]).unwrap_err().contains("record 7 follows record 5"));
        assert!(counted(5, &[payload(1, 6)]).unwrap_err().contains("not its own"));
        assert!(counted(0, &[payload(0, 3)]).unwrap_err().contains("lacks 1"));
    }
}
