//! Records a failed sync of a database while another process holds the lease of the database's
//! stream.
//!
//! The record is in the header of a separate stream, whose lease is held for microseconds only. So
//! the process that saw the failure may end. Every other process reads this stream before it
//! records that the database is durable and so voids records.

use log::{Log, STREAM_HEADER_BYTES, Stream};

use crate::failure::Failure;
use crate::stream::header::{SharedHeader, StreamHeader};
use crate::stream::lease::{Lease, leave};

/// The stream header of that stream while there is doubt.
const DOUBT: [u8; STREAM_HEADER_BYTES] = [1; STREAM_HEADER_BYTES];
const NONE: [u8; STREAM_HEADER_BYTES] = [0; STREAM_HEADER_BYTES];

fn doubt_name(database: &str) -> String {
    format!("{database}.doubt")
}

/// Tells other processes of a failed sync. `database` is the name of the database's stream.
pub(crate) fn leave_doubt(log: &Log, database: &str) -> Result<(), Failure> {
    let stream = log.stream(&doubt_name(database))?;
    let _lease = Lease::take(&stream)?;
    stream.set_header(&DOUBT);
    Ok(())
}

/// Whether another process reported a failed sync. If so, records that in the stream header of the
/// database's stream, whose name is `database`. The caller holds the stream's lease, and calls this
/// before anything records that the database is durable.
pub(crate) fn hear_doubt(log: &Log, stream: &Stream, database: &str) -> Result<bool, Failure> {
    let Some(left) = log.existing_stream(&doubt_name(database))? else { return Ok(false) };
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
        SharedHeader::Whole(shared) if shared.has_pages => {
            leave(stream, StreamHeader { is_applying: true, ..shared });
            true
        }
        // There is replay anyway.
        SharedHeader::Torn => true,
        SharedHeader::Whole(_) | SharedHeader::Unset => false,
    })
}
