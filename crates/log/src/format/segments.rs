//! The log files of one stream.
//!
//! ```text
//! 0000000000000000.seg   | header 64 bytes | records from LSN 0        | zeros |
//! 000000000001f3a8.seg   | header          | records from LSN 0x1f3a8  | zeros |
//! ```
//!
//! A file begins with a whole record; its name and its header say at which LSN. The files follow
//! each other without a gap, and all but the last are durable before the next one is made. Room is
//! reserved when a file is made: 1 MiB for the first, then twice as much as before, up to the
//! limit.

use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::sync::Arc;

use device::{FileStore, StoredFile};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::record::Identity;
use crate::format::scan::Bytes;
use crate::{LogError, Result};

/// Where the records of a file begin.
pub(crate) const DATA_OFFSET: u64 = 64;

/// "OJSEGMT1" in little endian.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"OJSEGMT1");

const SUFFIX: &str = ".seg";

const HEAD_NAME: &str = "head";

/// Most bytes that a file has beyond the limit: a batch of records may be longer than it.
const BEYOND_LIMIT_BYTES: u64 = 64 << 20;

/// Room reserved for the records of a stream's first file, in bytes.
const FIRST_BYTES: u64 = 1 << 20;

/// The header as it is stored.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSegment {
    pub(crate) magic: U64,
    pub(crate) salt: U64,
    pub(crate) first_lsn: U64,
    pub(crate) stream: U32,
    pub(crate) crc: U32,
    pub(crate) reserved: [u8; 32],
}

const _: () = assert!(size_of::<RawSegment>() as u64 == DATA_OFFSET);

impl RawSegment {
    fn new(identity: Identity, first: u64) -> RawSegment {
        let mut raw = RawSegment {
            magic: U64::new(MAGIC),
            salt: U64::new(identity.salt),
            first_lsn: U64::new(first),
            stream: U32::new(identity.stream.0),
            crc: U32::new(0),
            reserved: [0; 32],
        };
        raw.crc = U32::new(crc32c::crc32c(raw.as_bytes()));
        raw
    }

    fn is_sound(&self) -> bool {
        let unsummed = RawSegment { crc: U32::new(0), ..*self };
        self.magic.get() == MAGIC && self.crc.get() == crc32c::crc32c(unsummed.as_bytes())
    }
}

/// One file.
struct Segment {
    first: u64,
    file: Box<dyn StoredFile>,
    /// Space for records in the file, in bytes.
    room_bytes: u64,
}

/// What there is in the place of a file.
enum Found {
    /// The file.
    Whole(Segment),
    /// It is being made, or a crash left it then: all zeros.
    Unfinished,
    /// Its header is damaged.
    Damaged,
    /// Its header is whole, and that of another stream.
    Foreign,
}

fn foreign(first: u64) -> LogError {
    let name = name_of(first);
    LogError::Incompatible(format!("{name} belongs to another stream: its header says so"))
}

impl Segment {
    /// Reserves space for `room_bytes` of records. On a full disk, writing the zeros fails, and
    /// nothing is lost.
    fn extend(&mut self, room_bytes: u64) -> Result<()> {
        let missing = usize::try_from(room_bytes - self.room_bytes).expect("a batch");
        let written = self.file.write(DATA_OFFSET + self.room_bytes, &vec![0; missing]);
        written.map_err(|e| match e.source.kind() {
            StorageFull | QuotaExceeded => LogError::NoRoom(e.to_string()),
            _ => e.into(),
        })?;
        self.room_bytes = room_bytes;
        Ok(())
    }
}

/// The log files of a stream, by LSN.
pub(crate) struct Segments {
    store: Arc<dyn FileStore>,
    identity: Identity,
    /// Room of a file at most, in bytes.
    limit_bytes: u64,
    list: Vec<Segment>,
    /// Whether header and name of the last file are known to be durable. Another process may have
    /// made the file, and died before they were durable.
    is_last_durable: bool,
}

impl Segments {
    /// Opens the files in `store`. A last file that is all zeros is left out. Its header was never
    /// durable, so nothing was written after it, and recovery removes it.
    pub(crate) fn open(
        store: Arc<dyn FileStore>,
        identity: Identity,
        limit_bytes: u64,
    ) -> Result<Segments> {
        let mut segments = Segments::unread(store, identity, limit_bytes);
        segments.reload()?;
        Ok(segments)
    }

    /// The files in `store`, not read yet.
    pub(crate) fn unread(
        store: Arc<dyn FileStore>,
        identity: Identity,
        limit_bytes: u64,
    ) -> Segments {
        Segments { store, identity, limit_bytes, list: Vec::new(), is_last_durable: false }
    }

    /// Gives up the first file whose header is damaged, and all files after it. If it is the only
    /// file, the stream keeps its position.
    pub(crate) fn give_up_damaged(&mut self) -> Result<()> {
        let firsts = self.listed()?;
        let is_refused = |first: &u64| match self.open_one(*first) {
            Ok(Found::Damaged) => Ok(true),
            Ok(Found::Unfinished) if Some(first) != firsts.last() => Ok(true),
            // That is no damage.
            Ok(Found::Foreign) => Err(foreign(*first)),
            found => found.map(|_| false),
        };
        let mut sound_count = 0;
        while sound_count < firsts.len() && !is_refused(&firsts[sound_count])? {
            sound_count += 1;
        }
        for first in firsts.iter().skip(sound_count.max(1)).rev() {
            self.store.remove(&name_of(*first))?;
            self.store.sync_names()?;
        }
        match firsts.first() {
            Some(&first) if sound_count == 0 => {
                self.list.clear();
                // In the place of the damaged one.
                self.make(first, 1)
            }
            _ => self.reload(),
        }
    }

    /// Where the existing files begin, in order, without a check of their content.
    fn listed(&self) -> Result<Vec<u64>> {
        let mut firsts: Vec<u64> =
            self.store.names()?.iter().filter_map(|name| parse_name(name)).collect();
        firsts.sort_unstable();
        Ok(firsts)
    }

    /// Lists the files again, because another process may have made or removed some.
    pub(crate) fn reload(&mut self) -> Result<()> {
        let firsts = self.listed()?;
        let mut known = std::mem::take(&mut self.list);
        for (index, &first) in firsts.iter().enumerate() {
            if let Some(at) = known.iter().position(|segment| segment.first == first) {
                let segment = known.swap_remove(at);
                let len_bytes = segment.file.len_bytes()?;
                self.check_length(first, len_bytes)?;
                let room_bytes = len_bytes.saturating_sub(DATA_OFFSET);
                self.list.push(Segment { room_bytes, ..segment });
                continue;
            }
            match self.open_one(first) {
                Ok(Found::Whole(segment)) => {
                    self.list.push(segment);
                    self.is_last_durable = false;
                }
                Ok(Found::Unfinished) if index + 1 == firsts.len() => {}
                Ok(Found::Unfinished | Found::Damaged) => {
                    let text = format!("the header of {} is damaged", name_of(first));
                    return Err(LogError::Incompatible(text));
                }
                Ok(Found::Foreign) => return Err(foreign(first)),
                // Truncated away by another process since it was listed.
                Err(LogError::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The file that begins at `first`. A file gets records only after its header is durable, and
    /// the header is in one sector. So a header that is neither this one nor all zeros is damaged,
    /// or belongs to another stream.
    fn open_one(&self, first: u64) -> Result<Found> {
        let file = self.store.open(&name_of(first))?;
        self.check_length(first, file.len_bytes()?)?;
        let is_whole = |len_bytes, header: &RawSegment| {
            let expected = RawSegment::new(self.identity, first);
            len_bytes >= DATA_OFFSET && header.as_bytes() == expected.as_bytes()
        };
        let (mut len_bytes, mut header) = read_header(&*file)?;
        if !is_whole(len_bytes, &header) {
            if is_zeros(&*file, len_bytes)? {
                return Ok(Found::Unfinished);
            }
            // Unless another process has just made it.
            (len_bytes, header) = read_header(&*file)?;
        }
        if is_whole(len_bytes, &header) {
            let room_bytes = len_bytes - DATA_OFFSET;
            return Ok(Found::Whole(Segment { first, file, room_bytes }));
        }
        Ok(if header.is_sound() { Found::Foreign } else { Found::Damaged })
    }

    /// Refuses a file that no log makes so long, or not there. Recovery would read the zeros of a
    /// file of many terabytes, which takes no space on the disk.
    fn check_length(&self, first: u64, len_bytes: u64) -> Result<()> {
        let most = DATA_OFFSET + self.limit_bytes + BEYOND_LIMIT_BYTES;
        let end = first.checked_add(len_bytes);
        if len_bytes <= most && end.is_some_and(|end| end <= u64::MAX / 2) {
            return Ok(());
        }
        let text = format!(
            "{} has {len_bytes} bytes, and no log makes it so: put it back from a copy of the log",
            name_of(first)
        );
        Err(LogError::Incompatible(text))
    }

    /// Where the first record of the first file begins.
    pub(crate) fn first(&self) -> Option<u64> {
        self.list.first().map(|segment| segment.first)
    }

    /// Where the first record of the last file begins.
    pub(crate) fn last_first(&self) -> Option<u64> {
        self.list.last().map(|segment| segment.first)
    }

    /// The end of the space of the last file.
    pub(crate) fn end(&self) -> u64 {
        self.list.last().map_or(0, |segment| segment.first + segment.room_bytes)
    }

    /// Bytes that all files use, including reserved space.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.room_bytes + DATA_OFFSET).sum()
    }

    fn index_of(&self, at: u64) -> Option<usize> {
        self.list.partition_point(|segment| segment.first <= at).checked_sub(1)
    }

    /// Writes whole records that begin at `at`, in a new file if the last one is full. They are
    /// durable after [`Segments::sync`].
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at + bytes.len() as u64;
        match self.list.last_mut() {
            Some(last) if end <= last.first + last.room_bytes => {}
            // It holds nothing yet: a crash kept it from being filled with what it was made for.
            Some(last) if last.first == at => last.extend(bytes.len() as u64)?,
            _ => self.make(at, bytes.len() as u64)?,
        }
        self.write_again(at, bytes)
    }

    /// As [`Segments::write`], but into the file that contains `at`.
    pub(crate) fn write_again(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if !self.is_last_durable {
            // Records without a header would be taken for damage.
            self.sync()?;
        }
        let index = self.index_of(at).expect("there is a file for it");
        let segment = &mut self.list[index];
        segment.file.write(DATA_OFFSET + (at - segment.first), bytes)?;
        segment.room_bytes = segment.room_bytes.max(at - segment.first + bytes.len() as u64);
        Ok(())
    }

    /// Makes the file that begins at `first`, durably, after all earlier files are durable.
    /// Reserves space for at least `least_bytes`: a write to a full disk would be lost, but a file
    /// without space is simply not made.
    fn make(&mut self, first: u64, least_bytes: u64) -> Result<()> {
        self.sync()?;
        let room_bytes = match self.list.last() {
            None => FIRST_BYTES.min(self.limit_bytes),
            Some(last) => {
                (last.room_bytes * 2).clamp(FIRST_BYTES.min(self.limit_bytes), self.limit_bytes)
            }
        };
        let room_bytes = room_bytes.max(least_bytes);
        let name = name_of(first);
        if self.store.names()?.contains(&name) {
            // Left by a crash before its header was complete.
            self.store.remove(&name)?;
        }
        let file = self.store.create(&name, DATA_OFFSET + room_bytes)?;
        file.write(0, RawSegment::new(self.identity, first).as_bytes())?;
        file.sync()?;
        self.store.sync_names()?;
        self.list.push(Segment { first, file, room_bytes });
        self.is_last_durable = true;
        Ok(())
    }

    /// Returns when everything that was written is durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(last) = self.list.last() else { return Ok(()) };
        last.file.sync()?;
        if !self.is_last_durable {
            self.store.sync_names()?;
        }
        self.is_last_durable = true;
        Ok(())
    }

    /// Stores the position before which nothing is needed any more. A power cut may restore an
    /// older position.
    fn keep_head(&mut self, head: u64) -> Result<Box<dyn StoredFile>> {
        let file = match self.store.names()?.iter().any(|name| name == HEAD_NAME) {
            true => self.store.open(HEAD_NAME)?,
            false => self.store.create(HEAD_NAME, 16)?,
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&head.to_le_bytes());
        bytes[8..12].copy_from_slice(&crc32c::crc32c(&head.to_le_bytes()).to_le_bytes());
        file.write(0, &bytes)?;
        Ok(file)
    }

    /// As [`Segments::keep_head`], durably.
    fn keep_head_durably(&mut self, head: u64) -> Result<()> {
        self.keep_head(head)?.sync()?;
        Ok(self.store.sync_names()?)
    }

    /// The stored position; 0 if there is none, or if it is damaged.
    pub(crate) fn kept_head(&self) -> Result<u64> {
        if !self.store.names()?.iter().any(|name| name == HEAD_NAME) {
            return Ok(0);
        }
        let file = self.store.open(HEAD_NAME)?;
        let mut bytes = [0; 16];
        if file.len_bytes()? < 16 {
            return Ok(0);
        }
        file.read(0, &mut bytes)?;
        let crc = crc32c::crc32c(&bytes[..8]).to_le_bytes();
        let head = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
        Ok(if bytes[8..12] == crc { head } else { 0 })
    }

    /// Makes the files end at `end`: removes the files after it, the last one first, and the bytes
    /// after it in the file that contains it. Durable when this returns.
    pub(crate) fn cut(&mut self, end: u64) -> Result<()> {
        while self.list.len() > 1 && self.last_first().is_some_and(|first| first >= end) {
            let last = self.list.pop().expect("more than one");
            self.store.remove(&name_of(last.first))?;
            self.store.sync_names()?;
        }
        self.zero_behind(end)?;
        self.sync()
    }

    /// Makes the rest of the last log file zeros, if it is not.
    pub(crate) fn zero_behind(&mut self, end: u64) -> Result<()> {
        const STEP_BYTES: u64 = 1 << 20;
        let room_end = self.end();
        let mut buf = Vec::new();
        let mut at = end.max(self.last_first().unwrap_or(end));
        while at < room_end {
            let count = STEP_BYTES.min(room_end - at);
            buf.resize(usize::try_from(count).expect("1 MiB at most"), 0);
            self.read(at, &mut buf)?;
            if buf.iter().any(|byte| *byte != 0) {
                buf.fill(0);
                self.write(at, &buf)?;
            }
            at += count;
        }
        Ok(())
    }

    /// Drops everything before `head`: stores that position, and removes the files whose records
    /// are all before it and before `drained`. The last file stays.
    ///
    /// The position is durable before the first file is removed. A power cut may restore any of the
    /// removed files, so there may be a hole among them, and the hole must be before the position.
    pub(crate) fn truncate_before(&mut self, head: u64, drained: u64) -> Result<()> {
        let is_gone = |pair: &&[Segment]| pair[1].first <= head.min(drained);
        let count = self.list.windows(2).take_while(is_gone).count();
        if count == 0 {
            self.keep_head(head)?;
            return Ok(());
        }
        self.keep_head_durably(head)?;
        if !self.is_last_durable {
            self.sync()?;
        }
        self.remove_first(count)
    }

    fn remove_first(&mut self, count: usize) -> Result<()> {
        for segment in self.list.drain(..count) {
            match self.store.remove(&name_of(segment.first)) {
                // Another process was faster.
                Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Recovery's first step: if a crash left a file that was being made, removes it durably,
    /// before another file is made after it.
    pub(crate) fn remove_incomplete(&mut self) -> Result<()> {
        for first in self.listed()? {
            if !self.list.iter().any(|segment| segment.first == first) {
                self.store.remove(&name_of(first))?;
                self.store.sync_names()?;
            }
        }
        Ok(())
    }

    /// Recovery's last step, when the records end at `end`. Removes the remaining files that were
    /// being removed. If the stored head is after `end`, replaces it, because later records could
    /// reach it.
    pub(crate) fn tidy(&mut self, end: u64) -> Result<()> {
        let head = self.kept_head()?;
        if head > end {
            self.keep_head_durably(end)?;
        }
        let is_gone = |pair: &&[Segment]| pair[1].first <= head.min(end);
        let count = self.list.windows(2).take_while(is_gone).count();
        self.remove_first(count)
    }
}

impl Bytes for Segments {
    fn read(&mut self, mut at: u64, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let (count, stored) = match self.index_of(at) {
                // After the reserved room of a file and before the next: never written.
                Some(index) => {
                    let segment = &self.list[index];
                    let next = self.list.get(index + 1).map_or(u64::MAX, |next| next.first);
                    let room_end = (segment.first + segment.room_bytes).min(next);
                    match at < room_end {
                        true => (room_end - at, Some(segment)),
                        false => (next - at, None),
                    }
                }
                None => (self.first().unwrap_or(u64::MAX) - at, None),
            };
            let count = usize::try_from(count.min(buf.len() as u64)).expect("fits the buffer");
            let (part, rest) = buf.split_at_mut(count);
            match stored {
                Some(segment) => segment.file.read(DATA_OFFSET + (at - segment.first), part)?,
                None => part.fill(0),
            }
            buf = rest;
            at += count as u64;
        }
        Ok(())
    }
}

/// A file's length, and its first bytes, with zeros after the end of the file.
fn read_header(file: &dyn StoredFile) -> Result<(u64, RawSegment)> {
    let len_bytes = file.len_bytes()?;
    let mut bytes = [0; size_of::<RawSegment>()];
    let count = usize::try_from(len_bytes.min(DATA_OFFSET)).expect("a header");
    file.read(0, &mut bytes[..count])?;
    Ok((len_bytes, zerocopy::transmute!(bytes)))
}

fn is_zeros(file: &dyn StoredFile, len_bytes: u64) -> Result<bool> {
    let mut buf = vec![0; 1 << 16];
    let mut at = 0;
    while at < len_bytes {
        let count = usize::try_from(len_bytes - at).unwrap_or(usize::MAX).min(buf.len());
        file.read(at, &mut buf[..count])?;
        if buf[..count].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

fn name_of(first: u64) -> String {
    format!("{first:016x}{SUFFIX}")
}

fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().filter(|first| name_of(*first) == name)
}

#[cfg(test)]
mod tests {
    use host::{Folder, Trust};

    use super::*;
    use crate::StreamId;
    use device::Directory;

    const OURS: Identity = Identity { stream: StreamId(1), salt: 5 };

    fn open(test_dir: &tempfile::TempDir) -> Result<Segments> {
        let store = Arc::new(Directory::new(
            Folder::open(test_dir.path(), Trust::own()).expect("directory"),
            0o600,
        ));
        Segments::open(store, OURS, 2 << 20)
    }

    #[test]
    fn bytes_are_read_back_across_the_borders_of_files() {
        let test_dir = tempfile::tempdir().expect("directory");
        let mut segments = open(&test_dir).expect("open");
        assert_eq!((segments.first(), segments.end()), (None, 0));
        let parts: Vec<Vec<u8>> = (0..5u8).map(|n| vec![n + 1; 700 << 10]).collect();
        let mut at = 1000;
        for part in &parts {
            segments.write(at, part).expect("write");
            at += part.len() as u64;
        }
        segments.sync().expect("sync");
        let mut again = open(&test_dir).expect("again");
        assert_eq!(again.first(), Some(1000));
        assert!(again.list.len() >= 2 && again.end() >= at);
        let mut found = vec![9; parts.concat().len() + 500];
        again.read(1000, &mut found).expect("read");
        assert!(found[..found.len() - 500] == parts.concat());
        assert!(found[found.len() - 500..].iter().all(|byte| *byte == 0));
        let last = again.last_first().expect("files");
        again.truncate_before(last - 1, u64::MAX).expect("truncate");
        assert!(again.first().expect("one") < last, "the file with the record before stays");
        again.truncate_before(u64::MAX, u64::MAX).expect("truncate");
        assert_eq!(again.first(), Some(last), "the last stays");
    }

    #[test]
    fn a_last_file_without_a_header_is_made_anew() {
        let test_dir = tempfile::tempdir().expect("directory");
        let mut segments = open(&test_dir).expect("open");
        segments.write(0, &[1; 100]).expect("write");
        std::fs::write(test_dir.path().join(name_of(100)), [0; 200]).expect("half a file");
        let mut again = open(&test_dir).expect("again");
        assert_eq!(again.last_first(), Some(0));
        again.make(100, 1).expect("made");
        assert_eq!(open(&test_dir).expect("open").last_first(), Some(100));
    }

    #[test]
    fn regression_an_empty_file_without_room_gets_it() {
        let test_dir = tempfile::tempdir().expect("directory");
        let mut segments = open(&test_dir).expect("open");
        segments.write(0, &[1; 100]).expect("write");
        segments.make(100, 100).expect("make");
        let room_bytes = segments.end() - 100;
        // The process that made the file died. The next one writes more than the file was made for.
        let mut segments = open(&test_dir).expect("open");
        let bytes = vec![2; usize::try_from(room_bytes).expect("small") + 4];
        segments.write(100, &bytes).expect("write");
        segments.sync().expect("sync");
        let segments = open(&test_dir).expect("open");
        assert_eq!(segments.end(), 100 + bytes.len() as u64, "reserved, not grown by writing");
        assert_eq!(segments.list.len(), 2);
    }

    #[test]
    fn file_with_a_damaged_header_and_all_later_files_are_given_up() {
        let test_dir = tempfile::tempdir().expect("directory");
        let mut segments = open(&test_dir).expect("open");
        for first in [1000, 2000, 3000] {
            segments.make(first, 100).expect("make");
        }
        let spoil = |first| {
            let path = test_dir.path().join(name_of(first));
            let mut bytes = std::fs::read(&path).expect("file");
            bytes[9] ^= 1;
            std::fs::write(&path, bytes).expect("write");
        };
        let give_up = || {
            open(&test_dir).err().expect("refused");
            let store = Arc::new(Directory::new(
                Folder::open(test_dir.path(), Trust::own()).expect("directory"),
                0o600,
            ));
            let mut segments = Segments::unread(store, OURS, 2 << 20);
            segments.give_up_damaged().expect("give up");
            let again = open(&test_dir).expect("sound");
            (segments.first(), segments.last_first(), again.first(), again.last_first())
        };
        spoil(2000);
        assert_eq!(give_up(), (Some(1000), Some(1000), Some(1000), Some(1000)));
        spoil(1000);
        assert_eq!(give_up(), (Some(1000), Some(1000), Some(1000), Some(1000)));
        let mut segments = open(&test_dir).expect("sound");
        segments.give_up_damaged().expect("nothing");
        assert_eq!(segments.first(), Some(1000));
    }

    #[test]
    fn a_file_of_another_stream_is_refused() {
        let test_dir = tempfile::tempdir().expect("directory");
        let other = RawSegment::new(Identity { salt: 6, ..OURS }, 0);
        std::fs::write(test_dir.path().join(name_of(0)), other.as_bytes()).expect("file");
        let error = open(&test_dir).err().expect("refused");
        assert!(error.to_string().contains("another stream"), "{error}");
    }

    #[test]
    fn names() {
        assert_eq!(name_of(0x1f3a8), "000000000001f3a8.seg");
        assert_eq!(parse_name("000000000001f3a8.seg"), Some(0x1f3a8));
        for other in ["1.seg", "000000000001F3A8.seg", "+00000000001f3a8.seg", "meta.json"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
