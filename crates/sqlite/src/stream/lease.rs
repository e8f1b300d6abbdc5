//! A database's stream of the log: the lease of who writes it, its note, and its end.

use std::time::{Duration, Instant};

use log::{LogError, Lsn, Stream};

use crate::failure::Failure;
use crate::format::base::{Base, encode_base};
use crate::stream::note::{Found, Note};

/// How long another process may keep the lease, which it does for microseconds.
const LEASE_WAIT: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

/// The stream's lease, for as long as this lives.
pub struct Lease<'a>(&'a Stream);

impl Lease<'_> {
    /// Waits until no other process has it.
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

/// Appends a record; its LSN. `None`: the log's pool is too small for the record.
pub fn append_if_it_fits(stream: &Stream, record: &[u8]) -> Result<Option<u64>, Failure> {
    match stream.append(record) {
        Ok(lsn) => Ok(Some(lsn.0)),
        Err(LogError::TooLarge { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Appends a record; its LSN.
pub fn append(stream: &Stream, record: &[u8]) -> Result<u64, Failure> {
    Ok(stream.append(record)?.0)
}

/// What the stream's note says.
pub fn find_note(stream: &Stream) -> Result<Found, Failure> {
    Ok(match Note::find(&stream.note()?) {
        Found::Note(note) if note.end_lsn != stream.appended().0 => Found::Torn,
        found => found,
    })
}

/// Leaves `note` behind the last record. With the lease.
pub fn leave(stream: &Stream, note: Note) -> Note {
    let note = Note { end_lsn: stream.appended().0, ..note };
    stream.set_note(&note.to_bytes());
    note
}

/// The stream's note; one that is none knows no generation.
pub fn note_of(stream: &Stream) -> Result<Note, Failure> {
    Ok(match find_note(stream)? {
        Found::Note(note) => note,
        Found::Nothing | Found::Torn => Note::default(),
    })
}

/// Says durably that nothing of the stream is wanted any more. With the lease.
pub fn close(stream: &Stream) -> Result<(), Failure> {
    let lsn = append_closed(stream)?;
    let note = leave(stream, Note { base_lsn: lsn, last_lsn: lsn, ..Note::default() });
    stream.sync(Lsn(lsn))?;
    // What is left behind is given back later.
    let _ = truncate(stream, &note);
    Ok(())
}

/// Says so to whoever reads what is durable later. With the lease.
pub fn append_closed(stream: &Stream) -> Result<u64, Failure> {
    append(stream, &encode_base(&Base::closed()))
}

/// Gives back what lies before the records that count, when the note's last record is durable, which was appended behind
/// the one that says so.
pub fn truncate(stream: &Stream, note: &Note) -> Result<(), Failure> {
    let base = Lsn(note.base_lsn);
    if stream.head() < base && stream.end() > Lsn(note.last_lsn) {
        stream.truncate_before(base)?;
    }
    Ok(())
}
