//! Makes a WAL file itself durable, and records it in the log (rules 2, 7 and 8 in the crate's
//! essay).

use crate::abi::ffi::SQLITE_IOERR_FSYNC;
use crate::abi::real::Real;
use crate::counters::{COUNTERS, count};
use crate::failure::Failure;
use crate::format::base::{Base, Kind, encode_base};
use crate::format::wal::{self, HEADER_BYTES, Header};
use crate::frames::read::{Files, change_counter, copy_onto_itself, frame_header};
use crate::frames::scan::Scan;
use crate::frames::witnesses::witnesses;
use crate::stream::header::{Holds, SharedHeader, StreamHeader};
use crate::stream::lease::{append, find_header, leave};
use crate::stream::stamped::Stream;

/// Makes the WAL file durable, and records that it is durable up to frame `last`, which ends a
/// transaction. The caller has the lease.
pub fn make_durable(
    stream: &Stream,
    header: &Header,
    files: Files<'_>,
    last: u32,
) -> Result<StreamHeader, Failure> {
    let checksum = match last {
        0 => header.checksum,
        last => match frame_header(header, files.wal, last)? {
            Some(frame) => frame.checksum,
            None => return Err(Failure::Damaged(format!("the WAL lacks its frame {last}"))),
        },
    };
    let base = Base {
        kind: Kind::Durable,
        salts: header.salts,
        page_bytes: header.page_bytes,
        change_counter: change_counter(files.main)?,
        frames: last,
        checksum,
        stale: Vec::new(),
        witnesses: witnesses(header, files.wal, last)?,
    };
    sync_file(stream, header, files.wal)?;
    let lsn = append(stream, &encode_base(&base))?;
    Ok(leave(stream, StreamHeader::at(header, last, checksum, lsn)))
}

/// Syncs the WAL, which has this header. If the sync fails, the kernel may mark pages as clean
/// although it could not write them. The next sync would then succeed and prove nothing. So no sync
/// is tried until all frames that count are written again.
pub fn sync_file(stream: &Stream, header: &Header, wal: &Real) -> Result<(), Failure> {
    let found = find_header(stream)?;
    if let SharedHeader::Whole(shared) = found
        && shared.salts == header.salts
        && shared.is_unsynced
    {
        let what = "after a sync that failed, syncing";
        return Err(Failure::Sqlite { code: SQLITE_IOERR_FSYNC, what });
    }
    real_sync(wal).inspect_err(|_| {
        if let SharedHeader::Whole(shared) = found {
            leave(stream, shared.unsynced(header));
        }
    })
}

/// Writes the WAL's header and the first `count` frames again, so that a sync of them counts. The
/// caller holds SQLite's write lock.
pub fn write_again(
    stream: &Stream,
    header: &Header,
    wal: &Real,
    count: u32,
) -> Result<(), Failure> {
    let scan = Scan::read(wal)?.filter(|scan| scan.header == *header && scan.valid() >= count);
    if scan.is_none() {
        return Err(Failure::Damaged("the WAL lost frames when a sync failed".into()));
    }
    copy_onto_itself(wal, 0..header.frame_at(count + 1))?;
    if let SharedHeader::Whole(shared) = find_header(stream)? {
        leave(stream, StreamHeader { is_unsynced: false, ..shared });
    }
    Ok(())
}

/// Makes the WAL's header durable, also after an earlier sync failed.
pub fn sync_header(wal: &Real) -> Result<(), Failure> {
    copy_onto_itself(wal, 0..HEADER_BYTES as u64)?;
    real_sync(wal)
}

pub fn real_sync(wal: &Real) -> Result<(), Failure> {
    count(&COUNTERS.real_syncs);
    wal.sync()
}

impl StreamHeader {
    /// The stream header after a failed sync of the WAL with this header.
    pub fn unsynced(self, header: &Header) -> StreamHeader {
        if self.salts == header.salts {
            return StreamHeader { is_unsynced: true, ..self };
        }
        // Nothing of this generation was logged.
        let StreamHeader { base_lsn, last_lsn, .. } = self;
        let holds = if self.holds.has_pages() { Holds::Nothing } else { self.holds };
        let (is_unsynced, is_dirty) = (true, true);
        let new = StreamHeader::at(header, 0, header.checksum, base_lsn);
        StreamHeader { last_lsn, holds, is_unsynced, is_dirty, ..new }
    }

    /// The stream header right after a base at `lsn`.
    pub fn at(header: &Header, logged: u32, checksum: wal::Checksum, lsn: u64) -> StreamHeader {
        let page_bytes = u32::try_from(header.page_bytes).expect("64 KiB at most");
        let (salts, base_lsn, last_lsn) = (header.salts, lsn, lsn);
        StreamHeader {
            salts,
            page_bytes,
            logged,
            checksum,
            base_lsn,
            last_lsn,
            ..StreamHeader::default()
        }
    }
}
