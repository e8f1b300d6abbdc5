//! Walks the records of a span of a stream, and tells a torn end from damage.

use crate::format::record::{ALIGN_BYTES, HEADER_BYTES, Header, Identity};
use crate::{Lsn, Result};

/// Bytes of a stream, by LSN. Bytes that were never written read as zeros.
pub(crate) trait Bytes {
    /// Fills `buf` with the bytes at `at`.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()>;
}

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 1 << 20;

/// The records of `source` one after the other, up to `end`.
pub(crate) struct Records<'a, B> {
    identity: Identity,
    source: &'a mut B,
    /// Where the next record begins.
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a, B: Bytes> Records<'a, B> {
    pub(crate) fn new(identity: Identity, source: &'a mut B, from: Lsn, end: u64) -> Self {
        Records { identity, source, at: from.0, end, window: Vec::new(), window_at: from.0 }
    }

    /// Where the next record begins, or would.
    pub(crate) fn position(&self) -> Lsn {
        Lsn(self.at)
    }

    /// `len_bytes` bytes at `at`, which must be before the end.
    fn bytes(&mut self, at: u64, len_bytes: usize) -> Result<&[u8]> {
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len_bytes as u64 > window_end {
            let wanted = (len_bytes.max(WINDOW_BYTES) as u64).min(self.end - at);
            self.window.resize(usize::try_from(wanted).expect("a window"), 0);
            self.window_at = at;
            self.source.read(at, &mut self.window)?;
        }
        let offset = usize::try_from(at - self.window_at).expect("in the window");
        Ok(&self.window[offset..offset + len_bytes])
    }

    /// The valid record at `at`, with all its bytes.
    fn record_at(&mut self, at: u64) -> Result<Option<(Header, &[u8])>> {
        let room = self.end.saturating_sub(at);
        if room < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let identity = self.identity;
        let Some(header) = identity.header(Lsn(at), self.bytes(at, HEADER_BYTES)?) else {
            return Ok(None);
        };
        let len_bytes = HEADER_BYTES + header.payload_bytes;
        if room < len_bytes as u64 {
            return Ok(None);
        }
        let bytes = self.bytes(at, len_bytes)?;
        Ok(identity.is_whole(Lsn(at), &header, bytes).then_some((header, bytes)))
    }

    /// The next record: where it begins, its header, and its payload. `None`: the bytes there are
    /// not a record.
    pub(crate) fn next(&mut self) -> Result<Option<(Lsn, Header, &[u8])>> {
        let found = self.next_raw()?;
        Ok(found.map(|(lsn, header, bytes)| (lsn, header, &bytes[HEADER_BYTES..])))
    }

    /// As [`Records::next`], but returns all stored bytes of the record, without the zeros after
    /// them.
    pub(crate) fn next_raw(&mut self) -> Result<Option<(Lsn, Header, &[u8])>> {
        let at = self.at;
        let Some((header, _)) = self.record_at(at)? else { return Ok(None) };
        self.at += header.record_bytes() as u64;
        // The bytes of a record that was valid are in the window still.
        let bytes = self.bytes(at, HEADER_BYTES + header.payload_bytes)?;
        Ok(Some((Lsn(at), header, bytes)))
    }

    /// The next records, at least one, and as many as were read already: where they begin, and
    /// their bytes as stored, with the zeros after each record. `None`: the bytes there are not a
    /// record.
    pub(crate) fn next_run(&mut self) -> Result<Option<(Lsn, &[u8])>> {
        let begin = self.at;
        let Some((first, _)) = self.record_at(begin)? else { return Ok(None) };
        self.bytes(begin, first.record_bytes())?;
        let window_at = self.window_at;
        let offset = |at: u64| usize::try_from(at - window_at).expect("in the window");
        let mut next = Some(first);
        while let Some(header) = next {
            let end = self.at + header.record_bytes() as u64;
            let payload_end = self.at + (HEADER_BYTES + header.payload_bytes) as u64;
            // The writer of the lane need not have left zeros there.
            self.window[offset(payload_end)..offset(end)].fill(0);
            self.at = end;
            let at_hand = &self.window[offset(end)..];
            next = self.identity.whole(Lsn(end), at_hand);
            next = next.filter(|header| header.record_bytes() <= at_hand.len());
        }
        Ok(Some((Lsn(begin), &self.window[offset(begin)..offset(self.at)])))
    }

    /// Goes to the end of the valid records. Returns the header of the last one, if there was any.
    pub(crate) fn skip_all(&mut self) -> Result<Option<Header>> {
        let mut last = None;
        while let Some((header, _)) = self.record_at(self.at)? {
            self.at += header.record_bytes() as u64;
            last = Some(header);
        }
        Ok(last)
    }

    /// The first valid record after the position which proves that the bytes between were durable
    /// once.
    pub(crate) fn proof_of_damage(&mut self) -> Result<Option<Lsn>> {
        let mut at = self.at + ALIGN_BYTES as u64;
        while at + HEADER_BYTES as u64 <= self.end {
            if let Some((header, _)) = self.record_at(at)?
                && !header.follows_unsynced
            {
                return Ok(Some(Lsn(at)));
            }
            at += ALIGN_BYTES as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::FOLLOWS_UNSYNCED;
    use crate::{StreamId, Usn};

    struct Memory(Vec<u8>);

    impl Bytes for Memory {
        fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
            let at = usize::try_from(at).expect("small");
            buf.copy_from_slice(&self.0[at..at + buf.len()]);
            Ok(())
        }
    }

    const OURS: Identity = Identity { stream: StreamId(1), salt: 5 };

    fn stream(payloads: &[(usize, u32)]) -> (Memory, Vec<u64>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for (number, (len_bytes, flags)) in payloads.iter().enumerate() {
            let lsn = Lsn(bytes.len() as u64);
            let payload = vec![number as u8; *len_bytes];
            starts.push(lsn.0);
            bytes.extend_from_slice(&OURS.seal(lsn, Usn(number as u64), &payload, *flags));
            bytes.extend_from_slice(&payload);
            bytes.resize(bytes.len().next_multiple_of(ALIGN_BYTES), 0);
        }
        bytes.resize(bytes.len() + 100, 0);
        (Memory(bytes), starts)
    }

    fn walk(memory: &mut Memory) -> (Vec<usize>, u64, Option<Lsn>) {
        let end = memory.0.len() as u64;
        let mut records = Records::new(OURS, memory, Lsn(0), end);
        let mut lengths = Vec::new();
        while let Some((_, header, payload)) = records.next().expect("memory") {
            assert_eq!(header.payload_bytes, payload.len());
            lengths.push(payload.len());
        }
        let position = records.position().0;
        (lengths, position, records.proof_of_damage().expect("memory"))
    }

    #[test]
    fn records_are_walked_to_a_clean_end() {
        let (mut memory, _) = stream(&[(0, 0), (1, 0), (3 << 20, 0), (5, 0)]);
        let end = memory.0.len() as u64 - 100;
        assert_eq!(walk(&mut memory), (vec![0, 1, 3 << 20, 5], end, None));
    }

    #[test]
    fn runs_are_whole_records_with_the_zeros_after_them() {
        let (mut memory, starts) =
            stream(&[(1, 0), (5, 0), (700 << 10, 0), (900 << 10, 0), (3, 0)]);
        let end = memory.0.len() - 100;
        let clean = memory.0[..end].to_vec();
        let behind_second = usize::try_from(starts[1]).expect("small") + HEADER_BYTES + 5;
        memory.0[behind_second] = 0xff;
        let mut records = Records::new(OURS, &mut memory, Lsn(0), end as u64);
        let (mut found, mut runs) = (Vec::new(), Vec::new());
        while let Some((lsn, bytes)) = records.next_run().expect("memory") {
            assert_eq!(lsn.0, found.len() as u64);
            found.extend_from_slice(bytes);
            runs.push(lsn);
        }
        assert!(found == clean);
        assert_eq!(runs, [Lsn(0), Lsn(starts[3])]);
    }

    #[test]
    fn damage_is_proved_by_a_later_record_that_followed_only_durable_ones() {
        let (mut memory, starts) = stream(&[(40, 0), (40, 0), (40, FOLLOWS_UNSYNCED), (40, 0)]);
        memory.0[30] ^= 1;
        assert_eq!(walk(&mut memory), (vec![], 0, Some(Lsn(starts[1]))));
        memory.0[30] ^= 1;
        memory.0[usize::try_from(starts[1]).expect("small") + 30] ^= 1;
        assert_eq!(walk(&mut memory), (vec![40], starts[1], Some(Lsn(starts[3]))), "not the third");
    }

    #[test]
    fn a_torn_end_is_no_damage() {
        let (mut memory, starts) = stream(&[(40, 0), (40, 0), (40, FOLLOWS_UNSYNCED)]);
        memory.0[usize::try_from(starts[1]).expect("small") + 30] ^= 1;
        assert_eq!(walk(&mut memory), (vec![40], starts[1], None));
    }
}
