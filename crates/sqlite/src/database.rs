//! One database of this process: what its WAL's writes and syncs mean to the log. The essay is in `lib.rs`.
//!
//! Locks, in this order: `state`, the stream's lease. Both are held while a record is made, its note
//! is written and what it is based on is read.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::sync::Mutex;
use log::{Log, LogError, Lsn, Stream};

use crate::Failure;
use crate::background::Background;
use crate::faults::{self, Fault};
use crate::ffi::SQLITE_IOERR_FSYNC;
use crate::note::{Found, Note};
use crate::pending::Pending;
use crate::place::{self, Settings};
use crate::real::{Opened, Real};
use crate::record::{Base, Kind, Record, Stale, encode_base};
use crate::recovery::Scan;
use crate::stat::COUNTERS;
use crate::stream::{Lease, append, close, find_note, leave, note_of, truncate};
use crate::tail::Tail;
use crate::versions::Versions;
use crate::vfs::Below;
use crate::wal::{self, FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES, Header};

/// More frames than this at once, in bytes, make the file itself durable: a large write costs the same there.
pub const DIRECT_BYTES: u64 = 1 << 20;
/// So much log behind a base does too: it bounds what recovery has to read.
const LIVE_BYTES_MAX: u64 = 32 << 20;
/// So many generations may be newer than the durable one.
const STALE_COUNT_MAX: usize = 32;

/// A database that is open in this process, by any number of connections.
pub struct Database {
    /// The database file.
    pub path: PathBuf,
    /// Where its log is.
    pub settings: Settings,
    /// The VFS below.
    pub below: Below,
    /// Connections that have it open.
    pub connections: AtomicUsize,
    /// Whether any of those that came might write.
    pub has_writers: AtomicBool,
    /// Whether transactions of pages become records.
    pub has_batches: AtomicBool,
    /// Its syncs that nobody waits for.
    pub(crate) background: Background,
    state: Mutex<State>,
}

/// What this process remembers; all of it can be found again.
#[derive(Default)]
struct State {
    service: Option<(Arc<Log>, Stream)>,
    /// The WAL's header when it was read last: right for frames that have its salts.
    header: Option<Header>,
    versions: Versions,
    /// The last *begin* of this process, and its LSN.
    begun: Option<(u64, Base)>,
}

/// A connection's files.
#[derive(Clone, Copy)]
pub struct Files {
    /// The database.
    pub main: Real,
    /// Its WAL.
    pub wal: Real,
}

impl Database {
    /// A database without a log yet.
    pub fn new(path: PathBuf, settings: Settings, below: Below) -> Database {
        Database {
            path,
            settings,
            below,
            connections: AtomicUsize::new(0),
            has_writers: AtomicBool::new(false),
            has_batches: AtomicBool::new(false),
            background: Background::default(),
            state: Mutex::default(),
        }
    }

    /// Its log, if it has one open.
    pub fn log(&self) -> Option<Arc<Log>> {
        self.state.lock().service.as_ref().map(|(log, _)| log.clone())
    }

    /// Opens the log; one that does not exist only if `may_create`. Whether it is open now.
    pub fn open_log(&self, may_create: bool) -> Result<bool, Failure> {
        let mut state = self.state.lock();
        if state.service.is_none() && (may_create || self.settings.exists()) {
            let log = place::open_log(&self.settings)?;
            let stream = log.stream(&self.settings.stream_name(&self.path))?;
            state.service = Some((log, stream));
        }
        Ok(state.service.is_some())
    }

    /// Gives the log up when no connection of this process has the database open any more.
    pub fn close_log(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        // One that came meanwhile has counted itself before it looks for the log here.
        if self.connections.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        let Some((log, stream)) = state.service.take() else { return Ok(()) };
        drop(state);
        drop(stream);
        place::close_log(log)
    }

    /// Runs `f` with the stream of an open log.
    pub fn with_stream<T>(
        &self,
        f: impl FnOnce(&Stream) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let state = self.state.lock();
        state.service.as_ref().map(|(_, stream)| f(stream)).transpose()
    }

    /// Runs `f` with an open log, and its stream.
    pub fn with_log<T>(
        &self,
        f: impl FnOnce(&Log, &Stream) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let state = self.state.lock();
        state.service.as_ref().map(|(log, stream)| f(log, stream)).transpose()
    }

    /// Before `header` is written to the front of the WAL: a generation begins. SQLite does that when
    /// the database holds the one before it durably.
    pub fn begin_generation(&self, files: Files, header: &[u8]) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (Some((_, stream)), Some(new)) = (&state.service, Header::parse(header)) else {
            return Ok(());
        };
        let _lease = Lease::take(stream)?;
        let note = note_of(stream)?;
        let old = read_header(files.wal)?;
        if old.is_some_and(|old| old.salts == new.salts) {
            // All of it is written again.
            if note.is_unsynced {
                leave(stream, Note { is_unsynced: false, ..note });
            }
            return Ok(());
        }
        let stale = match old {
            None => {
                empty_durably(files.wal)?;
                Vec::new()
            }
            Some(old) => stale_after(stream, &note, &old, files.wal, &state.begun)?,
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
        };
        let lsn = append(stream, &encode_base(&base))?;
        state.begun = Some((lsn, base));
        let is_new = old.is_none();
        leave(stream, Note { is_new, ..Note::at(&new, 0, new.checksum, lsn) });
        Ok(())
    }

    /// Before a frame is written at `offset` of the WAL. When the log has that frame already, whoever logged
    /// it failed or died before SQLite counted it: the log forgets it first. Before the first frame of a transaction
    /// (`is_first`) a sync that failed is made good.
    pub fn begin_frame(&self, files: Files, offset: u64, is_first: bool) -> Result<(), Failure> {
        let state = self.state.lock();
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
        let mut state = self.state.lock();
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
                logged_frames = logged.is_ok().then_some(note.logged + 1..=tail.last);
                if logged.is_err() {
                    *versions = Versions::default();
                }
                match logged {
                    // A record that the log's pool is too small for.
                    Err(Failure::Log(LogError::TooLarge { .. })) => {
                        make_durable(stream, &header, files, tail.last)?
                    }
                    logged => logged?,
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

    /// After the last connection has brought everything home and removed the WAL, durably.
    pub fn wal_removed(&self) -> Result<(), Failure> {
        let closed = self.with_stream(|stream| {
            let _lease = Lease::take(stream)?;
            close(stream)
        })?;
        closed.map_or(Ok(()), |()| Ok(()))
    }

    /// When this process has the database open no more and others may: what is logged becomes durable
    /// in the WAL itself, so that nothing depends on the log while nobody here uses it.
    pub fn left(&self, main: Real) -> Result<(), Failure> {
        let state = self.state.lock();
        let Some((_, stream)) = &state.service else { return Ok(()) };
        if !has_frames(find_note(stream)?) {
            return Ok(());
        }
        // Before the WAL is opened: whoever begins a generation needs it, and the file is the note's.
        let _lease = Lease::take(stream)?;
        let found = find_note(stream)?;
        if !has_frames(found) {
            return Ok(());
        }
        // SAFETY: the VFS below is registered for good.
        let Some(mut opened) = (unsafe { Opened::wal(self.below.0, &self.path, true)? }) else {
            return Ok(());
        };
        let wal = opened.real();
        let (header, count) = match found {
            Found::Note(note) => match read_header(wal)? {
                Some(header) if header.salts == note.salts => (header, note.logged),
                // SQLite ends a generation when the database has all of it durably.
                _ => {
                    real_sync(wal)?;
                    return close(stream);
                }
            },
            // Whoever died may have logged more than SQLite counts.
            Found::Torn | Found::Nothing => match Scan::read(wal)? {
                Some(scan) => (scan.header, scan.committed()),
                None => return Ok(()),
            },
        };
        let note = make_durable(stream, &header, Files { main, wal }, count)?;
        Ok(stream.sync(Lsn(note.last_lsn))?)
    }
}

/// Whether frames of the WAL may be in the log alone.
fn has_frames(found: Found) -> bool {
    match found {
        Found::Note(note) => note.has_frames,
        Found::Torn => true,
        Found::Nothing => false,
    }
}

/// Logs the frames of `tail`.
fn log_frames(
    versions: &mut Versions,
    stream: &Stream,
    header: &Header,
    files: Files,
    note: &Note,
    tail: &Tail<'_>,
) -> Result<Note, Failure> {
    versions.catch_up(header, files.wal, note)?;
    let record = versions.encode(header, files, note, tail)?;
    let Tail { last, checksum, .. } = *tail;
    if faults::is(Fault::SkipsAppend) {
        return Ok(leave(stream, Note { logged: last, checksum, ..*note }));
    }
    let lsn = append(stream, &record)?;
    let (frames, frame_bytes) = (u64::from(last - note.logged), tail.frames.len() as u64);
    COUNTERS.logged(frames, frame_bytes, record.len() as u64);
    versions.logged(tail, record);
    let note = Note { logged: last, checksum, last_lsn: lsn, has_frames: true, ..*note };
    Ok(leave(stream, note))
}

impl Note {
    /// The note when a sync of the WAL with this header failed.
    fn unsynced(self, header: &Header) -> Note {
        if self.salts == header.salts {
            return Note { is_unsynced: true, ..self };
        }
        // Nothing of this generation was logged.
        let Note { base_lsn, last_lsn, has_frames, .. } = self;
        let (is_unsynced, is_dirty) = (true, true);
        let new = Note::at(header, 0, header.checksum, base_lsn);
        Note { last_lsn, has_frames, is_unsynced, is_dirty, ..new }
    }

    /// The note right behind a base at `lsn`.
    fn at(header: &Header, logged: u32, checksum: wal::Checksum, lsn: u64) -> Note {
        let page_bytes = u32::try_from(header.page_bytes).expect("64 KiB at most");
        let (salts, base_lsn, last_lsn) = (header.salts, lsn, lsn);
        Note { salts, page_bytes, logged, checksum, base_lsn, last_lsn, ..Note::default() }
    }
}

fn real_sync(wal: Real) -> Result<(), Failure> {
    COUNTERS.real_sync();
    wal.sync()
}

/// Syncs the WAL, which has this header. When that fails the kernel may count pages as clean that it could not write,
/// and the next sync succeeds all the same. So none is tried, until all that counts is written again.
fn sync_file(stream: &Stream, header: &Header, wal: Real) -> Result<(), Failure> {
    let found = find_note(stream)?;
    if matches!(found, Found::Note(note) if note.salts == header.salts && note.is_unsynced) {
        let what = "after a sync that failed, syncing";
        return Err(Failure::Sqlite { code: SQLITE_IOERR_FSYNC, what });
    }
    real_sync(wal).inspect_err(|_| {
        if let Found::Note(note) = found {
            leave(stream, note.unsynced(header));
        }
    })
}

/// Writes the WAL's header and the first `count` frames again, so that a sync of them counts. While SQLite lets nobody
/// else write.
fn write_again(stream: &Stream, header: &Header, wal: Real, count: u32) -> Result<(), Failure> {
    let scan = Scan::read(wal)?.filter(|scan| scan.header == *header && scan.valid() >= count);
    if scan.is_none() {
        return Err(Failure::Damaged("the WAL lost frames when a sync failed".into()));
    }
    copy_onto_itself(wal, 0..header.frame_at(count + 1))?;
    if let Found::Note(note) = find_note(stream)? {
        leave(stream, Note { is_unsynced: false, ..note });
    }
    Ok(())
}

/// Writes what the file has there again, so that the next sync counts for it, whatever became of an earlier one.
pub fn copy_onto_itself(wal: Real, span: Range<u64>) -> Result<(), Failure> {
    let mut bytes = vec![0; 128 << 10];
    for at in span.clone().step_by(bytes.len()) {
        let left = usize::try_from(span.end - at).unwrap_or(usize::MAX);
        let piece = &mut bytes[..left.min(128 << 10)];
        wal.read(at, piece)?;
        wal.write(at, piece)?;
    }
    Ok(())
}

/// Makes the WAL's header durable, whatever became of an earlier sync.
fn sync_header(wal: Real) -> Result<(), Failure> {
    copy_onto_itself(wal, 0..HEADER_BYTES as u64)?;
    real_sync(wal)
}

/// A WAL without a header may be one that SQLite emptied, which it does not sync: the disk may show some frames of the
/// generation before, which *begin* would have the log forget.
fn empty_durably(wal: Real) -> Result<(), Failure> {
    // Once more, in case a sync of that has failed.
    wal.truncate(0)?;
    real_sync(wal)
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

/// The WAL's header, if it has a valid one.
pub fn read_header(wal: Real) -> Result<Option<Header>, Failure> {
    let mut bytes = [0; HEADER_BYTES];
    let count = wal.read(0, &mut bytes)?;
    Ok(Header::parse(&bytes[..count]))
}

/// The header of a frame, if the file reaches so far.
pub fn frame_header(
    header: &Header,
    wal: Real,
    number: u32,
) -> Result<Option<FrameHeader>, Failure> {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    let count = wal.read(header.frame_at(number), &mut bytes)?;
    Ok((count == bytes.len()).then(|| FrameHeader::parse(&bytes)))
}

/// The change counter of the database file.
pub fn change_counter(main: Real) -> Result<u32, Failure> {
    let mut front = [0; 28];
    main.read(0, &mut front)?;
    Ok(wal::change_counter(&front))
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

/// Makes the file durable, and says that it is up to frame `last`, which ends a transaction. With the lease.
fn make_durable(
    stream: &Stream,
    header: &Header,
    files: Files,
    last: u32,
) -> Result<Note, Failure> {
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
    };
    sync_file(stream, header, files.wal)?;
    let lsn = append(stream, &encode_base(&base))?;
    Ok(leave(stream, Note::at(header, last, checksum, lsn)))
}

/// The generations that the file may show after a power cut once it begins again over `old`.
fn stale_after(
    stream: &Stream,
    note: &Note,
    old: &Header,
    wal: Real,
    begun: &Option<(u64, Base)>,
) -> Result<Vec<Stale>, Failure> {
    let is_known = note.salts == old.salts && !note.is_new;
    let mut frames = if is_known { note.logged } else { 0 };
    while let Some(frame) = frame_header(old, wal, frames + 1)?
        && frame.salts == old.salts
    {
        frames += 1;
    }
    let mut stale = match base_of(stream, note, begun) {
        Some(base) if is_known && base.salts == old.salts => base.stale,
        // What it holds was never in the log, or nobody knows: now it is durable.
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

/// The base that the note names, if it is durable. One that this process appended is not read back: that takes all
/// records behind it, too.
fn base_of(stream: &Stream, note: &Note, begun: &Option<(u64, Base)>) -> Option<Base> {
    if let Some((lsn, base)) = begun
        && *lsn == note.base_lsn
    {
        return (stream.end() > Lsn(*lsn)).then(|| base.clone());
    }
    let record = stream.read_from(Lsn(note.base_lsn)).ok()?.next_record().ok()??;
    match Record::parse(&record.payload) {
        Ok(Record::Base(base)) => Some(base),
        _ => None,
    }
}

/// Counts a connection that came.
pub fn came(database: &Database) {
    database.connections.fetch_add(1, Ordering::AcqRel);
}

/// Counts a connection that went; whether it was the last.
pub fn went(database: &Database) -> bool {
    database.connections.fetch_sub(1, Ordering::AcqRel) == 1
}

#[cfg(test)]
mod tests;
