//! A commit in WAL mode: the frames since the last sync become one record, or the file itself is
//! synced.

use std::sync::atomic::Ordering;

use log::Lsn;

use crate::abi::ffi::SQLITE_WARNING;
use crate::abi::real::Real;
use crate::counters::COUNTERS;
use crate::database::{Database, LogState};
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::wal::{FRAME_HEADER_BYTES, HEADER_BYTES, Header};
use crate::frames::pending::Pending;
use crate::frames::read::{Files, frame_header, read_header};
use crate::frames::scan::Scan;
use crate::frames::tail::{DIRECT_BYTES, Tail};
use crate::frames::versions::Versions;
use crate::messages::tell;
use crate::stream::header::{Holds, SharedHeader, StreamHeader};
use crate::stream::lease::{
    Lease, append_if_it_fits, find_header, header_or_default, leave, truncate,
};
use crate::stream::stamped::Stream;
use crate::wal::durable::{make_durable, real_sync, sync_file, write_again};

/// Upper bound, in bytes, of log that recovery reads after a base.
const LIVE_BYTES_MAX: u64 = 32 << 20;

impl Database {
    /// Called before a frame is written at `offset` of the WAL. If the log has that frame already,
    /// the process that logged it failed or died before SQLite counted it, and the record is voided
    /// first. Before the first frame of a transaction (`is_first`), an earlier failed sync is made
    /// good (rule 8).
    pub fn begin_frame(
        &self,
        files: Files<'_>,
        offset: u64,
        is_first: bool,
    ) -> Result<(), Failure> {
        let state = self.state();
        let Some((_, stream)) = &state.service else { return Ok(()) };
        let found = find_header(stream)?;
        let may_cover = match found {
            SharedHeader::Unset => false,
            SharedHeader::Torn => true,
            // Without a look at the generation: a frame after all logged ones needs no read.
            SharedHeader::Whole(shared) => {
                let frame_bytes = u64::from(shared.page_bytes) + FRAME_HEADER_BYTES as u64;
                offset < HEADER_BYTES as u64 + u64::from(shared.logged) * frame_bytes
                    || is_first && shared.is_unsynced
            }
        };
        if !may_cover {
            return Ok(());
        }
        let Some(header) = read_header(files.wal)? else { return Ok(()) };
        if matches!(found, SharedHeader::Whole(shared) if shared.salts != header.salts) {
            return Ok(());
        }
        let _lease = Lease::take(stream)?;
        let counted = header.frames_before(offset);
        let is_synced = matches!(found, SharedHeader::Whole(shared) if !shared.is_unsynced);
        if is_first && !is_synced {
            write_again(stream, &header, files.wal, counted)?;
        }
        let shared = make_durable(stream, &header, files, counted)?;
        Ok(stream.sync(Lsn(shared.last_lsn))?)
    }

    /// Makes the WAL's frames durable. `pending` is what this connection wrote since the last sync.
    /// Its buffers may be empty after this call.
    ///
    /// If the log fails, the file is synced instead. The log then lacks frames that the file has,
    /// which the next commit finds out, because it begins after them (`must_be_real`).
    pub fn sync_wal(&self, files: Files<'_>, pending: &mut Pending) -> Result<(), Failure> {
        let synced = self.sync_through_log(files, pending);
        if matches!(synced, Err(Failure::Log(_))) {
            self.log_fails.store(true, Ordering::Relaxed);
        }
        match synced {
            Err(Failure::Log(e)) if self.may_sync_instead() => {
                let path = self.path.display();
                tell(
                    SQLITE_WARNING,
                    &format!("{path}: this commit syncs, because the log fails: {e}"),
                );
                real_sync(files.wal)
            }
            done => done,
        }
    }

    /// Whether a sync of the WAL counts. It does not after one that failed (rule 8). If the
    /// stream never had a record, no sync is known to have failed.
    fn may_sync_instead(&self) -> bool {
        let may = self.with_stream(|stream| {
            Ok(match find_header(stream)? {
                SharedHeader::Whole(shared) => !shared.is_unsynced,
                SharedHeader::Unset => stream.appended() == stream.head(),
                SharedHeader::Torn => false,
            })
        });
        matches!(may, Ok(Some(true))) && !faults::is(Fault::FailsWithLog)
    }

    fn sync_through_log(&self, files: Files<'_>, pending: &mut Pending) -> Result<(), Failure> {
        let mut state = self.state();
        let LogState { service, header, versions, .. } = &mut *state;
        let Some((_, stream)) = service else { return real_sync(files.wal) };
        let Some(header) = header_of(header, files.wal, pending)? else {
            return real_sync(files.wal);
        };
        let lease = Lease::take(stream)?;
        let shared = header_or_default(stream)?;
        let last_lsn = shared.last_lsn;
        let mut logged_frames = None;
        let shared = match Tail::find(&header, files.wal, &shared, pending)? {
            None => sync_without_commit(stream, &header, files, shared)?,
            // Rule 9.
            Some(_) if shared.is_closed() && begins_wal(&header, pending) => {
                sync_file(stream, &header, files.wal)?;
                shared
            }
            Some(tail) if must_be_real(stream, &header, &shared, &tail, pending) => {
                make_durable(stream, &header, files, tail.last)?
            }
            Some(tail) => {
                let logged = log_frames(versions, stream, &header, files, &shared, &tail);
                match logged {
                    Ok(Some(shared)) => {
                        logged_frames = Some(shared.logged + 1..=tail.last);
                        shared
                    }
                    Ok(None) => {
                        *versions = Versions::default();
                        make_durable(stream, &header, files, tail.last)?
                    }
                    Err(e) => {
                        *versions = Versions::default();
                        return Err(e);
                    }
                }
            }
        };
        if let Some(numbers) = logged_frames {
            versions.remember(&header, numbers, pending);
        }
        drop(lease);
        if shared.salts == header.salts {
            stream.sync(Lsn(shared.last_lsn))?;
            if shared.last_lsn != last_lsn {
                self.log_fails.store(false, Ordering::Relaxed);
            }
            // A later truncation frees what this one did not.
            let _ = truncate(stream, &shared);
        }
        Ok(())
    }
}

/// Carries out a sync at a checkpoint, or after a new header (rule 5).
fn sync_without_commit(
    stream: &Stream,
    header: &Header,
    files: Files<'_>,
    shared: StreamHeader,
) -> Result<StreamHeader, Failure> {
    if shared.salts != header.salts {
        sync_file(stream, header, files.wal)?;
        return Ok(shared);
    }
    let has_unlogged = frame_header(header, files.wal, shared.logged + 1)?
        .is_some_and(|frame| frame.salts == header.salts);
    if !has_unlogged && !shared.is_new && !shared.is_dirty {
        return Ok(shared);
    }
    if has_unlogged && shared.holds == Holds::Frames {
        let committed = Scan::read(files.wal)?.map_or(0, |scan| scan.committed());
        if committed > shared.logged {
            return make_durable(stream, header, files, committed);
        }
    }
    sync_file(stream, header, files.wal)?;
    let shared =
        StreamHeader { is_new: false, is_dirty: has_unlogged || shared.is_dirty, ..shared };
    Ok(leave(stream, shared))
}

/// Logs the frames of `tail`. `None`: the log's pool is too small for the record. Without a stream
/// header, `versions` may not be used any more.
fn log_frames(
    versions: &mut Versions,
    stream: &Stream,
    header: &Header,
    files: Files<'_>,
    shared: &StreamHeader,
    tail: &Tail<'_>,
) -> Result<Option<StreamHeader>, Failure> {
    versions.catch_up(header, files.wal, shared)?;
    let record = versions.encode(header, files, shared, tail)?;
    let Tail { last, checksum, .. } = *tail;
    if faults::is(Fault::SkipsAppend) {
        return Ok(Some(leave(stream, StreamHeader { logged: last, checksum, ..*shared })));
    }
    let Some(lsn) = append_if_it_fits(stream, &record)? else { return Ok(None) };
    let (frames, frame_bytes) = (u64::from(last - shared.logged), tail.frames.len() as u64);
    COUNTERS.logged(frames, frame_bytes, record.len() as u64);
    versions.logged(tail, record);
    let holds = Holds::Frames;
    let shared = StreamHeader { logged: last, checksum, last_lsn: lsn, holds, ..*shared };
    Ok(Some(leave(stream, shared)))
}

/// The WAL's header. It is not read again if the frames that were just written have the salts of
/// the last one.
fn header_of(
    known: &mut Option<Header>,
    wal: &Real,
    pending: &Pending,
) -> Result<Option<Header>, Failure> {
    let has_its_salts =
        |known: &Header| pending.first_frame(known).is_some_and(|frame| frame.salts == known.salts);
    if !known.as_ref().is_some_and(has_its_salts) {
        *known = read_header(wal)?;
    }
    Ok(*known)
}

/// Whether a commit is the first one in its WAL.
fn begins_wal(header: &Header, pending: &Pending) -> bool {
    header.frames_before(pending.written().start) == 0
}

/// Whether a commit is written to the file and not to the log. Other connections may have left
/// frames without logging them. The database may contain these frames already, and then their
/// changes cannot be seen any more.
fn must_be_real(
    stream: &Stream,
    header: &Header,
    shared: &StreamHeader,
    tail: &Tail<'_>,
    pending: &Pending,
) -> bool {
    shared.salts != header.salts
        || shared.is_dirty
        || shared.is_new
        || header.frames_before(pending.written().start) != shared.logged
        || tail.frames.len() as u64 > DIRECT_BYTES
        || stream.appended().0 - shared.base_lsn > LIVE_BYTES_MAX
}
