//! Records a failed sync of a database while another process holds the lease of the database's
//! stream.
//!
//! The record is in the header of a separate stream, whose lease is held for microseconds only. So
//! the process that saw the failure may end. Every other process reads this stream before it
//! records that the database is durable and so voids records.

use log::{Log, STREAM_HEADER_BYTES};

use crate::failure::Failure;
use crate::stream::header::{Holds, SharedHeader, StreamHeader};
use crate::stream::lease::{Lease, leave};
use crate::stream::stamp::Stamp;
use crate::stream::stamped::Stream;

/// The stream header of that stream while there is doubt.
const DOUBT: [u8; STREAM_HEADER_BYTES] = [1; STREAM_HEADER_BYTES];
const NONE: [u8; STREAM_HEADER_BYTES] = [0; STREAM_HEADER_BYTES];

fn doubt_name(database: &Stream) -> String {
    format!("{}.doubt", database.name().as_str())
}

/// Tells other processes of a failed sync of the database whose stream `database` is.
pub(crate) fn leave_doubt(log: &Log, database: &Stream) -> Result<(), Failure> {
    let stream = Stream::new(log.stream(&doubt_name(database))?, Stamp::default());
    let _lease = Lease::take(&stream)?;
    stream.set_header(&DOUBT);
    Ok(())
}

/// Whether another process reported a failed sync. If so, records that in the stream header of the
/// database's stream. The caller holds the stream's lease, and calls this before anything records
/// that the database is durable.
pub(crate) fn hear_doubt(log: &Log, stream: &Stream) -> Result<bool, Failure> {
    let Some(left) = log.existing_stream(&doubt_name(stream))? else { return Ok(false) };
    let left = Stream::new(left, Stamp::default());
    let _lease = Lease::take(&left)?;
    if left.header()? == NONE {
        return Ok(false);
    }
    let is_due = doubt(stream)?;
    left.set_header(&NONE);
    Ok(is_due)
}

/// Records, with the lease, that the database may lack what the page cache shows, so that a replay
/// is due. `false`: no period is under way. The process that ended the period synced the database,
/// and so got the error, too.
pub(crate) fn doubt(stream: &Stream) -> Result<bool, Failure> {
    Ok(match StreamHeader::read(&stream.header()?) {
        SharedHeader::Whole(shared) if shared.holds.has_pages() => {
            leave(stream, StreamHeader { holds: Holds::PagesInPart, ..shared });
            true
        }
        // There is replay anyway.
        SharedHeader::Torn => true,
        SharedHeader::Whole(_) | SharedHeader::Unset => false,
    })
}
