//! The start of a generation: SQLite writes a new header at the start of the WAL (rule 4).

use log::Lsn;

use crate::abi::real::Real;
use crate::database::Database;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::base::{Base, Kind, Stale, encode_base};
use crate::format::record::Record;
use crate::format::wal::Header;
use crate::frames::read::{Files, change_counter, frame_header, read_header};
use crate::frames::witnesses::witnesses;
use crate::stream::header::StreamHeader;
use crate::stream::lease::{Lease, append, header_or_default, leave};
use crate::stream::stamped::Stream;
use crate::wal::durable::{real_sync, sync_header};

/// At most this many generations may be newer than the durable one.
const STALE_COUNT_MAX: usize = 32;

impl Database {
    /// Called before `header` is written at the start of the WAL, which begins a generation. SQLite
    /// writes it once the database holds the previous generation durably.
    pub fn begin_generation(&self, files: Files<'_>, header: &[u8]) -> Result<(), Failure> {
        let mut state = self.state();
        let state = &mut *state;
        let (Some((_, stream)), Some(new)) = (&state.service, Header::parse(header)) else {
            return Ok(());
        };
        let _lease = Lease::take(stream)?;
        let shared = header_or_default(stream)?;
        let old = read_header(files.wal)?;
        // The log begins with the second commit after a WAL was made (rule 9).
        if old.is_none() && shared.is_closed() {
            return Ok(());
        }
        if old.is_some_and(|old| old.salts == new.salts) {
            // All of it is written again.
            if shared.is_unsynced {
                leave(stream, StreamHeader { is_unsynced: false, ..shared });
            }
            return Ok(());
        }
        let stale = match old {
            None => {
                empty_durably(files.wal)?;
                Vec::new()
            }
            Some(old) => stale_after(stream, &shared, &old, files.wal, &state.begun)?,
        };
        let witnesses = match old {
            Some(old) if old.salts == shared.salts => witnesses(&old, files.wal, shared.logged)?,
            _ => Vec::new(),
        };
        let stale = if faults::is(Fault::ForgetsStale) { Vec::new() } else { stale };
        let base = Base {
            kind: Kind::Begin,
            salts: new.salts,
            page_bytes: new.page_bytes,
            change_counter: change_counter(files.main)?,
            frames: 0,
            checksum: new.checksum,
            stale,
            witnesses,
        };
        let lsn = append(stream, &encode_base(&base))?;
        state.begun = Some((lsn, base));
        let is_new = old.is_none();
        leave(stream, StreamHeader { is_new, ..StreamHeader::at(&new, 0, new.checksum, lsn) });
        Ok(())
    }
}

/// Empties a WAL without a header, durably. SQLite may have emptied it without a sync. The disk
/// could then show frames of the previous generation after a power cut, and *begin* would make the
/// log forget that generation.
fn empty_durably(wal: &Real) -> Result<(), Failure> {
    // Once more, in case a sync of that has failed.
    wal.truncate(0)?;
    real_sync(wal)
}

/// The generations that the file may show after a power cut, once the new one is written over
/// `old`.
fn stale_after(
    stream: &Stream,
    shared: &StreamHeader,
    old: &Header,
    wal: &Real,
    begun: &Option<(u64, Base)>,
) -> Result<Vec<Stale>, Failure> {
    let is_known = shared.salts == old.salts && !shared.is_new;
    let mut frames = if is_known { shared.logged } else { 0 };
    while let Some(frame) = frame_header(old, wal, frames + 1)?
        && frame.salts == old.salts
    {
        frames += 1;
    }
    let mut stale = match base_of(stream, shared, begun) {
        Some(base) if is_known && base.salts == old.salts => base.stale,
        // Its frames were never in the log, or that is unknown. Now they are durable.
        _ => {
            sync_header(wal)?;
            Vec::new()
        }
    };
    if stale.len() >= STALE_COUNT_MAX {
        sync_header(wal)?;
        stale.clear();
    }
    stale.push(Stale { salts: old.salts, frames });
    Ok(stale)
}

/// The base that the stream header names, if it is durable. A base that this process appended is
/// remembered and not read, because reading it means reading all records after it, too.
fn base_of(stream: &Stream, shared: &StreamHeader, begun: &Option<(u64, Base)>) -> Option<Base> {
    if let Some((lsn, base)) = begun
        && *lsn == shared.base_lsn
    {
        return (stream.end() > Lsn(*lsn)).then(|| base.clone());
    }
    let record = stream.read_from(Lsn(shared.base_lsn)).ok()?.next_record().ok()??;
    match Record::parse(&record.payload) {
        Ok(Record::Base(base)) => Some(base),
        _ => None,
    }
}
