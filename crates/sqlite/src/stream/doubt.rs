//! A failed sync of a database that cannot be noted, because another process keeps the lease of its stream, is left in the
//! note of a stream of its own, whose lease is kept for microseconds only. So the process may end: whoever would say that the database is
//! durable, and void records for that, hears of it first.

use log::{Log, NOTE_BYTES, Stream};

use crate::database::Database;
use crate::failure::Failure;
use crate::stream::lease::{Lease, leave};
use crate::stream::note::{Found, Note};

/// What the note of that stream is while there is doubt.
const DOUBT: [u8; NOTE_BYTES] = [1; NOTE_BYTES];
const NONE: [u8; NOTE_BYTES] = [0; NOTE_BYTES];

impl Database {
    fn doubt_name(&self) -> String {
        format!("{}.doubt", self.settings.stream_name(&self.path))
    }

    /// Leaves word of a failed sync for others.
    pub(crate) fn leave_doubt(&self, log: &Log) -> Result<(), Failure> {
        let stream = log.stream(&self.doubt_name())?;
        let _lease = Lease::take(&stream)?;
        stream.set_note(&DOUBT);
        Ok(())
    }

    /// Whether somebody left word of a failed sync: it is in the note of the database's stream now, whose lease the caller
    /// has. Before anything says that the database is durable.
    pub(crate) fn hear_doubt(&self, log: &Log, stream: &Stream) -> Result<bool, Failure> {
        let Some(left) = log.existing_stream(&self.doubt_name())? else { return Ok(false) };
        let _lease = Lease::take(&left)?;
        if left.note()? == NONE {
            return Ok(false);
        }
        let is_due = doubt(stream)?;
        left.set_note(&NONE);
        Ok(is_due)
    }
}

/// Says, with the lease, that the database may lack what the page cache shows: replay is due. `false`: whoever ended the
/// period synced the database, and was told of the error, too.
pub(crate) fn doubt(stream: &Stream) -> Result<bool, Failure> {
    Ok(match Note::find(&stream.note()?) {
        Found::Note(note) if note.has_pages => {
            leave(stream, Note { is_applying: true, ..note });
            true
        }
        // There is replay anyway.
        Found::Torn => true,
        Found::Note(_) | Found::Nothing => false,
    })
}
