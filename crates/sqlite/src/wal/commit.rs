//! A commit in WAL mode: the frames since the last sync become one record, or the file itself is made durable.

use log::{Lsn, Stream};

use crate::counters::COUNTERS;
use crate::database::{Database, State};
use crate::failure::Failure;
use crate::format::wal::{FRAME_HEADER_BYTES, HEADER_BYTES, Header};
use crate::frames::pending::Pending;
use crate::frames::read::{Files, frame_header, read_header};
use crate::frames::tail::{DIRECT_BYTES, Tail};
use crate::frames::versions::Versions;
use crate::real::file::Real;
use crate::stream::lease::{Lease, append_if_it_fits, find_note, leave, note_of, truncate};
use crate::stream::note::{Found, Note};
use crate::wal::durable::{make_durable, real_sync, sync_file, write_again};

/// So much log behind a base does too: it bounds what recovery has to read.
const LIVE_BYTES_MAX: u64 = 32 << 20;
impl Database {
    /// Before a frame is written at `offset` of the WAL. When the log has that frame already, whoever logged
    /// it failed or died before SQLite counted it: the log forgets it first. Before the first frame of a transaction
    /// (`is_first`) a sync that failed is made good.
    pub fn begin_frame(&self, files: Files, offset: u64, is_first: bool) -> Result<(), Failure> {
        let state = self.state();
        let Some((_, stream)) = &state.service else { return Ok(()) };
        let found = find_note(stream)?;
        let may_cover = match found {
            Found::Nothing => false,
            Found::Torn => true,
            // Whatever its generation is; nothing has to be read for a frame behind all others.
            Found::Note(note) => {
                let frame_bytes = u64::from(note.page_bytes) + FRAME_HEADER_BYTES as u64;
                offset < HEADER_BYTES as u64 + u64::from(note.logged) * frame_bytes
                    || is_first && note.is_unsynced
            }
        };
        if !may_cover {
            return Ok(());
        }
        let Some(header) = read_header(files.wal)? else { return Ok(()) };
        if matches!(found, Found::Note(note) if note.salts != header.salts) {
            return Ok(());
        }
        let _lease = Lease::take(stream)?;
        let counted = header.frames_before(offset);
        let is_synced = matches!(found, Found::Note(note) if !note.is_unsynced);
        if is_first && !is_synced {
            write_again(stream, &header, files.wal, counted)?;
        }
        let note = make_durable(stream, &header, files, counted)?;
        Ok(stream.sync(Lsn(note.last_lsn))?)
    }

    /// Makes the WAL's frames durable; `pending` is what this connection wrote since the last sync.
    /// What that kept may be gone then.
    pub fn sync_wal(&self, files: Files, pending: &mut Pending) -> Result<(), Failure> {
        let mut state = self.state();
        let State { service, header, versions, .. } = &mut *state;
        let Some((_, stream)) = service else { return real_sync(files.wal) };
        let Some(header) = header_of(header, files.wal, pending)? else {
            return real_sync(files.wal);
        };
        let lease = Lease::take(stream)?;
        let note = note_of(stream)?;
        let mut logged_frames = None;
        let note = match Tail::find(&header, files.wal, &note, pending)? {
            None => self.sync_without_commit(stream, &header, files.wal, note)?,
            Some(tail) if must_be_real(stream, &header, &note, &tail, pending) => {
                make_durable(stream, &header, files, tail.last)?
            }
            Some(tail) => {
                let logged = log_frames(versions, stream, &header, files, &note, &tail);
                match logged {
                    Ok(Some(note)) => {
                        logged_frames = Some(note.logged + 1..=tail.last);
                        note
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
        if note.salts == header.salts {
            stream.sync(Lsn(note.last_lsn))?;
            // What is left behind is given back later.
            let _ = truncate(stream, &note);
        }
        Ok(())
    }

    /// A sync at a checkpoint, or of a new header.
    fn sync_without_commit(
        &self,
        stream: &Stream,
        header: &Header,
        wal: Real,
        note: Note,
    ) -> Result<Note, Failure> {
        if note.salts != header.salts {
            sync_file(stream, header, wal)?;
            return Ok(note);
        }
        let has_unlogged = frame_header(header, wal, note.logged + 1)?
            .is_some_and(|frame| frame.salts == header.salts);
        if !has_unlogged && !note.is_new && !note.is_dirty {
            return Ok(note);
        }
        sync_file(stream, header, wal)?;
        let note = Note { is_new: false, is_dirty: has_unlogged || note.is_dirty, ..note };
        Ok(leave(stream, note))
    }
}

/// Logs the frames of `tail`. `None`: the log's pool is too small for the record. Without a note, `versions` may not be
/// used any more.
fn log_frames(
    versions: &mut Versions,
    stream: &Stream,
    header: &Header,
    files: Files,
    note: &Note,
    tail: &Tail<'_>,
) -> Result<Option<Note>, Failure> {
    versions.catch_up(header, files.wal, note)?;
    let record = versions.encode(header, files, note, tail)?;
    let Tail { last, checksum, .. } = *tail;
    #[cfg(feature = "canary")]
    if crate::canary::is(crate::canary::Broken::SkipsAppend) {
        return Ok(Some(leave(stream, Note { logged: last, checksum, ..*note })));
    }
    let Some(lsn) = append_if_it_fits(stream, &record)? else { return Ok(None) };
    let (frames, frame_bytes) = (u64::from(last - note.logged), tail.frames.len() as u64);
    COUNTERS.logged(frames, frame_bytes, record.len() as u64);
    versions.logged(tail, record);
    let note = Note { logged: last, checksum, last_lsn: lsn, has_frames: true, ..*note };
    Ok(Some(leave(stream, note)))
}

/// The WAL's header, which is not read again when the frames that were just written have its salts.
fn header_of(
    known: &mut Option<Header>,
    wal: Real,
    pending: &Pending,
) -> Result<Option<Header>, Failure> {
    let has_its_salts =
        |known: &Header| pending.first_frame(known).is_some_and(|frame| frame.salts == known.salts);
    if !known.as_ref().is_some_and(has_its_salts) {
        *known = read_header(wal)?;
    }
    Ok(*known)
}

/// Whether a commit goes to the file and not to the log. Frames that others left without logging them may be
/// in the database already, where what they changed cannot be seen any more.
fn must_be_real(
    stream: &Stream,
    header: &Header,
    note: &Note,
    tail: &Tail<'_>,
    pending: &Pending,
) -> bool {
    note.salts != header.salts
        || note.is_dirty
        || note.is_new
        || header.frames_before(pending.written().start) != note.logged
        || tail.frames.len() as u64 > DIRECT_BYTES
        || stream.appended().0 - note.base_lsn > LIVE_BYTES_MAX
}
