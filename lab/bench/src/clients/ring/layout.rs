//! The ring in memory: where records are stored, and when they become valid.

use std::path::Path;

use device::{Durability, MappedNvram, Nvram};

/// Offset after the head and the number of valid bytes.
const RING_AT: u64 = 8;
pub const HEAD_BYTES: usize = 20;

/// Where valid records begin, and how many bytes of them there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    pub head: u32,
    pub valid_bytes: u32,
}

/// The bytes. The service coordinates the writers.
pub struct Layout {
    memory: MappedNvram,
    room_bytes: u32,
}

impl Layout {
    /// Makes an empty ring.
    pub fn create(path: &Path, room_bytes: u32) -> device::Result<Layout> {
        let len_bytes = RING_AT + u64::from(room_bytes);
        let memory = MappedNvram::create(path, len_bytes, Some(Durability::Process))?;
        Ok(Layout { memory, room_bytes })
    }

    /// Number of bytes that fit.
    pub fn room_bytes(&self) -> u32 {
        self.room_bytes
    }

    /// Makes this the valid part.
    pub fn publish(&self, extent: Extent) -> device::Result<()> {
        let word = u64::from(extent.head) | u64::from(extent.valid_bytes) << 32;
        self.memory.write_durable(0, &[&word.to_le_bytes()])
    }

    /// Copies a record after the valid part, durably. Returns the valid part that includes it.
    pub fn put(&self, extent: Extent, head: &[u8], payload: &[u8]) -> device::Result<Extent> {
        let mut at = (u64::from(extent.head) + u64::from(extent.valid_bytes)) % self.room();
        for piece in [head, payload] {
            let first = piece.len().min((self.room() - at) as usize);
            self.memory.store(RING_AT + at, &piece[..first])?;
            self.memory.store(RING_AT, &piece[first..])?;
            at = (at + piece.len() as u64) % self.room();
        }
        self.memory.persist()?;
        let len_bytes = (head.len() + payload.len()) as u32;
        Ok(Extent { valid_bytes: extent.valid_bytes + len_bytes, ..extent })
    }

    /// All valid bytes, contiguous.
    pub fn get(&self, extent: Extent) -> device::Result<Vec<u8>> {
        let mut bytes = vec![0; extent.valid_bytes as usize];
        let head = u64::from(extent.head);
        let first = bytes.len().min((self.room() - head) as usize);
        let (front, rest) = bytes.split_at_mut(first);
        self.memory.read(RING_AT + head, front)?;
        self.memory.read(RING_AT, rest)?;
        Ok(bytes)
    }

    /// The valid part without its first bytes.
    pub fn without(&self, extent: Extent, flushed_bytes: u32) -> Extent {
        let head = (u64::from(extent.head) + u64::from(flushed_bytes)) % self.room();
        Extent { head: head as u32, valid_bytes: extent.valid_bytes - flushed_bytes }
    }

    fn room(&self) -> u64 {
        u64::from(self.room_bytes)
    }
}

/// The front of a record.
pub fn record_head(client: u32, number: u64, payload: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&client.to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..16]), payload);
    head[16..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The records of each client, from the records of all.
pub fn by_client(bytes: &[u8], client_count: usize) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new(); client_count];
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let (record, behind) = rest.split_at(HEAD_BYTES + word(0) as usize);
        parts[word(4) as usize].extend_from_slice(record);
        rest = behind;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in_also_around_the_end() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let layout = Layout::create(&dir.path().join("ring"), 200).unwrap();
        let mut extent = Extent { head: 150, valid_bytes: 0 };
        let payloads: [&[u8]; 3] = [b"one", b"two of the other client", b"three"];
        for (number, payload) in (0..).zip(payloads) {
            let head = record_head(number as u32 % 2, number, payload);
            extent = layout.put(extent, &head, payload).unwrap();
            layout.publish(extent).unwrap();
        }
        assert_eq!(extent, Extent { head: 150, valid_bytes: 91 });
        let parts = by_client(&layout.get(extent).unwrap(), 2);
        let heads = [record_head(0, 0, b"one"), record_head(0, 2, b"three")];
        assert_eq!(parts[0], [&heads[0][..], b"one", &heads[1], b"three"].concat());
        assert_eq!(&parts[1][HEAD_BYTES..], payloads[1]);
        assert_eq!(layout.without(extent, 91), Extent { head: 41, valid_bytes: 0 });
    }
}
