//! The end of a WAL: its last connection removed it, or a process leaves while others stay (rule
//! 6).

use crate::abi::opened::Opened;
use crate::abi::real::Real;
use crate::database::Database;
use crate::failure::Failure;
use crate::frames::read::{Files, read_header};
use crate::frames::scan::Scan;
use crate::stream::header::{Holds, SharedHeader};
use crate::stream::lease::{Lease, close, find_header};
use crate::wal::durable::{make_durable, real_sync};
use log::Lsn;

impl Database {
    /// Whether the log may hold something of the WAL, so that its removal has to be durable before
    /// the log is closed.
    pub fn logs_wal(&self) -> bool {
        let found = self.with_stream(|stream| Ok(!is_closed(find_header(stream)?)));
        found.is_ok_and(|found| found.unwrap_or(false))
    }

    /// Called when the last connection has checkpointed everything and removed the WAL, durably.
    pub fn wal_removed(&self) -> Result<(), Failure> {
        let closed = self.with_stream(|stream| {
            let _lease = Lease::take(stream)?;
            close(stream)
        })?;
        closed.map_or(Ok(()), |()| Ok(()))
    }

    /// Called when this process has closed the database, which others may have open. Makes the
    /// logged frames durable in the WAL itself, so that nothing depends on the log while this
    /// process does not use it.
    pub fn left(&self, main: &Real) -> Result<(), Failure> {
        let state = self.state();
        let Some((_, stream)) = &state.service else { return Ok(()) };
        if !has_frames(find_header(stream)?) {
            return Ok(());
        }
        // The lease comes before the WAL is opened. A process needs it to begin a generation, so
        // the file stays that of the stream header.
        let _lease = Lease::take(stream)?;
        let found = find_header(stream)?;
        if !has_frames(found) {
            return Ok(());
        }
        let Some(opened) = Opened::wal(self.below, &self.path, true)? else { return Ok(()) };
        let wal = opened.real();
        let (header, count) = match found {
            SharedHeader::Whole(shared) => match read_header(wal)? {
                Some(header) if header.salts == shared.salts => (header, shared.logged),
                // SQLite ends a generation when the database has all of it durably.
                _ => {
                    real_sync(wal)?;
                    return close(stream);
                }
            },
            // The process that died may have logged more than SQLite counts.
            SharedHeader::Torn | SharedHeader::Unset => match Scan::read(wal)? {
                Some(scan) => (scan.header, scan.committed()),
                None => return Ok(()),
            },
        };
        let shared = make_durable(stream, &header, Files { main, wal }, count)?;
        Ok(stream.sync(Lsn(shared.last_lsn))?)
    }
}

/// Whether the log holds nothing of any WAL.
fn is_closed(found: SharedHeader) -> bool {
    matches!(found, SharedHeader::Whole(shared) if shared.is_closed())
}

/// Whether some frames of the WAL may be durable only in the log.
fn has_frames(found: SharedHeader) -> bool {
    match found {
        SharedHeader::Whole(shared) => shared.holds == Holds::Frames,
        SharedHeader::Torn => true,
        SharedHeader::Unset => false,
    }
}
