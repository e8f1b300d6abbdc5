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

/// What the stream header of that stream is while there is doubt.
const DOUBT: [u8; STREAM_HEADER_BYTES] = [1; STREAM_HEADER_BYTES];
const NONE: [u8; STREAM_HEADER_BYTES] = [0; STREAM_HEADER_BYTES];

fn doubt_name(database: &str) -> String {
    format!("{database}.doubt")
}

/// Leaves word of a failed sync for others. `database` is the name of the database's stream.
pub(crate) fn leave_doubt(log: &Log, database: &str) -> Result<(), Failure> {
    let stream = log.stream(&doubt_name(database))?;
    let _lease = Lease::take(&stream)?;
    stream.set_header(&DOUBT);
    Ok(())
}

/// Whether another process left word of a failed sync. If so, the stream header of the database's stream, which is named
/// `database`, says it from now on. The caller holds the stream's lease, and calls this before anything says that the
/// database is durable.
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

/// Says, with the lease, that the database may lack what the page cache shows: replay is due. `false`: no
/// period is under way. The process that ended it synced the database, and got the error too.
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
