//! Recovery: makes the lanes ready from what the medium holds after a restart.
//!
//! The first process recovers the service when its shared memory is new:
//!
//! 1. USNs go on after the stored limit.
//! 2. On NVRAM, each chunk says which stream it was allocated to, and is entered in that stream's
//!    table. On ordinary memory, the group log has records that were acknowledged and may not be in
//!    the log files. Their streams are recovered at once. Records of a stream that is refused go to
//!    its quarantine. Then the group log begins a new incarnation.
//!
//! A process recovers a stream when it first opens it:
//!
//! 1. Walk the records from the beginning of the last log file. Where a chunk or a piece of the
//!    group log covers a span, take the bytes from there, because the file may hold only a part of
//!    them.
//! 2. Look at the bytes after the last whole record. If they prove damage, refuse the stream.
//! 3. Write the covered records to the log files, make the rest of the last file zeros, and sync
//!    once.
//! 4. Free the chunks.
//!
//! Each step may be cut and done again, because nothing is freed before its records are in the log
//! files. The recovery of a stream reads no other stream's data.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::faults::{self, Fault};
use crate::format::chunk::{Allocation, DATA_OFFSET};
use crate::format::group::{self, Piece};
use crate::format::quarantine::{self, Quarantine};
use crate::format::record::{HEADER_BYTES, Identity};
use crate::format::scan::{Bytes, Records};
use crate::format::segments::Segments;
use crate::warnings::OF_STREAMS;
use crate::words::ORDINAL_MAX;
use crate::{LogError, Lsn, Result, StreamId, clock};

/// Records are written in batches of at least this many bytes. A batch is at most one record
/// longer.
const BATCH_BYTES: usize = 4 << 20;

/// Makes the service ready, in memory that is all zeros. The caller holds its lock.
pub(crate) fn recover_service(service: &Service) -> Result<()> {
    let (host, control) = (&service.host, &service.control);
    let limit = host.usn_limit()?;
    control.set_usn_base(limit.wrapping_sub(clock::monotonic_ns()));
    let next = limit
        .checked_add(crate::engine::service::USN_STEP)
        .ok_or_else(|| LogError::Incompatible(format!("no USN is left behind {limit}")))?;
    host.keep_usn_limit(next)?;
    control.set_usn_limit(next);
    let streams = host.streams()?;
    let next_stream = streams.iter().map(|(_, meta)| u64::from(meta.id) + 1).max().unwrap_or(0);
    control.set_next_stream(next_stream);
    if host.nvram().is_some() {
        find_lent_chunks(service)?;
    }
    if let Some(device) = host.group() {
        let (pieces, generation) = group::read_pieces(device)?;
        recover_pieces(service, &pieces)?;
        service.begin_group(generation)?;
    }
    control.mark_recovered();
    Ok(())
}

/// Enters the chunks on NVRAM in the tables of their lanes and in the pool.
fn find_lent_chunks(service: &Service) -> Result<()> {
    let host = &service.host;
    let chunk_bytes = host.settings().chunk_bytes;
    let streams = host.streams()?;
    for index in 0..host.settings().chunk_count as usize {
        let memory = host.chunk(index)?;
        let Some(allocation) = Allocation::read(&*memory)? else { continue };
        let is_of = |identity: Identity| {
            identity.stream == allocation.stream && identity.salt == allocation.salt
        };
        if !streams.iter().any(|(_, meta)| is_of(meta.identity())) {
            // The stream of the chunk was removed.
            Allocation::end(&*memory)?;
            continue;
        }
        let words = host.lane_words(allocation.stream)?;
        service.control.adopt_chunk(index, allocation.stream);
        // The stream's writer could write that header. An impossible or repeated ordinal in it
        // makes only this stream damaged, and its chunks stay as they are.
        let is_sound =
            allocation.ordinal < ORDINAL_MAX && allocation.ordinal < u64::MAX / 2 / chunk_bytes;
        match is_sound && !words.has_entry(allocation.ordinal) {
            true => words.set_chunk(allocation.ordinal, index),
            false => words.set_contradiction(true),
        }
    }
    Ok(())
}

/// Recovers the streams that have pieces in the group log.
fn recover_pieces(service: &Service, pieces: &[Piece]) -> Result<()> {
    let mut ids: Vec<StreamId> = pieces.iter().map(|piece| piece.stream).collect();
    ids.sort_unstable();
    ids.dedup();
    for (name, meta) in service.host.streams()? {
        let id = StreamId(meta.id);
        if ids.binary_search(&id).is_err() {
            continue;
        }
        let own: Vec<&Piece> = pieces.iter().filter(|piece| piece.stream == id).collect();
        let (store, identity) = (service.host.store(&name)?, meta.identity());
        let uid = meta.uid;
        let lane = Lane::open(service.host.clone(), name, meta);
        match lane.and_then(|lane| service.recover_lane(&Arc::new(lane), &own)) {
            // The stream stays refused, and no other.
            Err(e) if e.is_of_one_stream() => {
                OF_STREAMS.of_stream(uid, &e);
                quarantine::quarantine(&*store, identity, &own)?;
            }
            recovered => recovered?,
        }
    }
    Ok(())
}

impl Service {
    /// Recovers a lane whose words are zeros except for its table. The caller holds the service's
    /// lock.
    pub(crate) fn recover_lane(&self, lane: &Arc<Lane>, pieces: &[&Piece]) -> Result<()> {
        self.recover(lane, pieces, false)
    }

    /// As [`Service::recover_lane`], but gives up the damaged part of the last log file and
    /// everything after it.
    pub(crate) fn recover_discarding(&self, lane: &Arc<Lane>) -> Result<()> {
        self.recover(lane, &[], true)
    }

    fn recover(&self, lane: &Arc<Lane>, pieces: &[&Piece], is_discarding: bool) -> Result<()> {
        let words = &lane.words;
        if words.is_ready() {
            return Ok(());
        }
        if is_discarding {
            words.set_contradiction(false);
        } else if words.has_contradiction() {
            return Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: Lsn(0),
                what: "its chunks contradict each other".into(),
            });
        }
        self.host.keep_stream(&lane.name)?;
        let mut files = lane.files.lock();
        let segments = &mut files.segments;
        segments.reload()?;
        segments.remove_incomplete()?;
        let begin = segments.last_first().unwrap_or(0);
        let store = self.host.store(&lane.name)?;
        let quarantine = Quarantine::open(&*store, lane.identity())?;
        let covers = covers(self, lane, pieces, &quarantine)?;
        // If the words are lost, the table does not name the chunks that hold records.
        words.check()?;
        let mut composite = Composite { segments, covers: &covers, quarantine: &quarantine };
        let end_max = composite.end();
        if !is_discarding {
            self.check_reach(lane, composite.segments.end(), end_max)?;
        }
        let mut records = Records::new(lane.identity(), &mut composite, Lsn(begin), end_max);
        let last = records.skip_all()?;
        let end = records.position().0;
        if !is_discarding && let Some(later) = records.proof_of_damage()? {
            return Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: Lsn(end),
                what: format!("no valid record there, but one at {later}"),
            });
        }
        let covered = covers.iter().map(|cover| cover.at).min().unwrap_or(u64::MAX);
        write_covered(lane.identity(), &mut composite, begin, covered, end)?;
        composite.segments.zero_behind(end)?;
        composite.segments.sync()?;
        quarantine::remove(&*store)?;
        composite.segments.tidy(end)?;
        let head = composite.segments.kept_head()?.max(composite.segments.first().unwrap_or(0));
        drop(files);
        for (ordinal, index) in lane.chunks() {
            self.free_chunk(lane, ordinal, index)?;
        }
        if is_discarding {
            self.free_lost_chunks(lane)?;
        }
        let last_usn = last.map_or(0, |header| header.usn.0);
        words.mark_ready(head.min(end), end, last_usn);
        Ok(())
    }
}

impl Service {
    /// Checks that chunks and pieces begin where the log files end, and are no more than the pool
    /// can have. Bytes beyond that were never allocated, and a search for damage in them would be
    /// in vain.
    fn check_reach(&self, lane: &Lane, stored: u64, end: u64) -> Result<()> {
        let settings = self.host.settings();
        let most = stored + settings.pool_bytes() + settings.group_bytes + settings.chunk_bytes;
        match end <= most {
            true => Ok(()),
            false => Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: Lsn(stored),
                what: format!("there are bytes at {end}, far after the end of its log files"),
            }),
        }
    }
}

/// Bytes of a chunk or a piece. They are used in place of the log file's bytes at the same LSNs.
struct Cover<'a> {
    at: u64,
    end: u64,
    source: Source<'a>,
}

/// Where the bytes of a cover are.
enum Source<'a> {
    Memory(Cow<'a, [u8]>),
    /// At this offset in the quarantine.
    Quarantine(u64),
}

impl<'a> Cover<'a> {
    fn of(at: u64, bytes: impl Into<Cow<'a, [u8]>>) -> Cover<'a> {
        let bytes = bytes.into();
        Cover { at, end: at + bytes.len() as u64, source: Source::Memory(bytes) }
    }
}

/// The chunks and the pieces of a stream.
fn covers<'a>(
    service: &Service,
    lane: &Lane,
    pieces: &[&'a Piece],
    quarantine: &Quarantine,
) -> Result<Vec<Cover<'a>>> {
    let chunk_bytes = service.host.settings().chunk_bytes;
    let mut covers: Vec<Cover<'_>> =
        pieces.iter().map(|piece| Cover::of(piece.lsn, &piece.bytes)).collect();
    covers.extend(quarantine.pieces.iter().map(|kept| Cover {
        at: kept.lsn,
        end: kept.lsn + kept.len_bytes,
        source: Source::Quarantine(kept.at),
    }));
    for (ordinal, index) in lane.chunks() {
        let memory = lane.chunk_memory(index)?;
        // The table names a chunk only after its header is written. A chunk without a header is
        // being freed.
        let Some(allocation) = Allocation::read(&*memory)? else { continue };
        let begin = ordinal * chunk_bytes;
        let mut at = allocation.first.clamp(begin, begin + chunk_bytes);
        if faults::is(Fault::ChunkCountsFromItsBegin) {
            at = begin;
        }
        let mut bytes = vec![0; usize::try_from(begin + chunk_bytes - at).expect("fits memory")];
        memory.read(DATA_OFFSET + (at - begin), &mut bytes)?;
        covers.push(Cover::of(at, bytes));
    }
    Ok(covers)
}

/// Reads the log files, with the bytes of covers in place of the files' where there are any.
struct Composite<'a> {
    segments: &'a mut Segments,
    covers: &'a [Cover<'a>],
    quarantine: &'a Quarantine,
}

impl Composite<'_> {
    /// The end of the last byte in a file or a cover.
    fn end(&self) -> u64 {
        let covered = self.covers.iter().map(|cover| cover.end).max();
        self.segments.end().max(covered.unwrap_or(0))
    }

    /// The bytes from here to `end` are all covered.
    fn only_covered(&self, end: u64) -> u64 {
        let mut begin = end;
        let reaches = |cover: &&Cover<'_>, begin: u64| cover.at < begin && begin <= cover.end;
        while let Some(cover) = self.covers.iter().find(|cover| reaches(cover, begin)) {
            begin = cover.at;
        }
        begin
    }
}

impl Bytes for Composite<'_> {
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        let end = at + buf.len() as u64;
        match self.segments.last_first() {
            Some(_) => self.segments.read(at, buf)?,
            None => buf.fill(0),
        }
        for cover in self.covers {
            let (from, to) = (at.max(cover.at), end.min(cover.end));
            if from >= to {
                continue;
            }
            let span = |base: u64| {
                let index = |at: u64| usize::try_from(at - base).expect("in the buffer");
                index(from)..index(to)
            };
            match &cover.source {
                Source::Memory(bytes) => buf[span(at)].copy_from_slice(&bytes[span(cover.at)]),
                Source::Quarantine(begin) => {
                    self.quarantine.read(begin + (from - cover.at), &mut buf[span(at)])?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the records that end after `covered` to the log files, as whole records.
///
/// A record that begins before the last uncovered byte stays in its file. Otherwise, a new file
/// could have its header but not yet these records, and the next recovery would not find them.
fn write_covered(
    identity: Identity,
    composite: &mut Composite<'_>,
    begin: u64,
    covered: u64,
    end: u64,
) -> Result<()> {
    let only_covered = composite.only_covered(end);
    let mut at = begin;
    while at < end {
        let mut batch = Vec::new();
        let mut batch_at = at;
        let mut records = Records::new(identity, composite, Lsn(at), end);
        while batch.len() < BATCH_BYTES {
            let Some((lsn, header, bytes)) = records.next_raw()? else { break };
            let next = lsn.0 + header.record_bytes() as u64;
            at = next;
            if next <= covered {
                batch_at = next;
                continue;
            }
            debug_assert_eq!(bytes.len(), HEADER_BYTES + header.payload_bytes);
            batch.extend_from_slice(bytes);
            batch.resize(usize::try_from(next - batch_at).expect("a batch"), 0);
            if batch_at < only_covered && next >= only_covered {
                break;
            }
        }
        if batch.is_empty() {
            break;
        }
        match batch_at < only_covered {
            true => composite.segments.write_again(batch_at, &batch)?,
            false => composite.segments.write(batch_at, &batch)?,
        }
    }
    Ok(())
}
