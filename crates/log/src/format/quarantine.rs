//! The quarantine of a stream: synced records that are neither in its log files nor in the group
//! log.
//!
//! The log files are damaged or cannot be written, or a process that drains the stream was stopped,
//! and the group log goes on without these records. They go to a file `quarantine` beside the log
//! files. Until the stream is recovered they count as part of the group log.

use device::FileStore;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::group::Piece;
use crate::format::record::Identity;
use crate::{LogError, Result};

/// Name of the file. Part of the format.
const NAME: &str = "quarantine";

/// The header that precedes the records of a piece.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawQuarantined {
    pub(crate) lsn: U64,
    pub(crate) salt: U64,
    pub(crate) len_bytes: U32,
    pub(crate) crc: U32,
}

const HEADER_BYTES: usize = size_of::<RawQuarantined>();

impl RawQuarantined {
    fn new(identity: Identity, lsn: u64, bytes: &[u8]) -> RawQuarantined {
        let mut raw = RawQuarantined {
            lsn: U64::new(lsn),
            salt: U64::new(identity.salt),
            len_bytes: U32::new(u32::try_from(bytes.len()).expect("not more than a group log")),
            crc: U32::new(0),
        };
        raw.crc = U32::new(crc32c::crc32c_append(crc32c::crc32c(raw.as_bytes()), bytes));
        raw
    }
}

/// Adds pieces to the quarantine of a stream, durably, unless they are there already.
pub(crate) fn quarantine(
    store: &dyn FileStore,
    identity: Identity,
    pieces: &[&Piece],
) -> Result<()> {
    let (known, mut end) = read_file(store, identity)?;
    let is_new = |piece: &&&Piece| {
        let piece_end = piece.lsn + piece.bytes.len() as u64;
        !known.iter().any(|known| {
            known.lsn <= piece.lsn && piece_end <= known.lsn + known.bytes.len() as u64
        })
    };
    for piece in pieces.iter().filter(is_new) {
        end = append(store, identity, piece, end)?;
    }
    if store.names()?.iter().any(|name| name == NAME) {
        // Pieces that are there already may be in memory only.
        store.open(NAME)?.sync()?;
        store.sync_names()?;
    }
    Ok(())
}

/// Adds a piece after the last whole one, durably. That one ends at `end`; 0: the file has to be
/// read. Returns where the new piece ends.
pub(crate) fn append(
    store: &dyn FileStore,
    identity: Identity,
    piece: &Piece,
    end: u64,
) -> Result<u64> {
    let is_there = store.names()?.iter().any(|name| name == NAME);
    let is_known = is_there && end > 0;
    let end = if is_known { end } else { read_file(store, identity)?.1 };
    let file = if is_there { store.open(NAME)? } else { store.create(NAME, 0)? };
    let header = RawQuarantined::new(identity, piece.lsn, &piece.bytes);
    file.write(end, &[header.as_bytes(), &piece.bytes].concat())?;
    file.sync()?;
    if !is_known {
        // A process that made it may have died before its name was durable.
        store.sync_names()?;
    }
    Ok(end + (HEADER_BYTES + piece.bytes.len()) as u64)
}

/// The quarantined pieces of a stream.
pub(crate) fn read(store: &dyn FileStore, identity: Identity) -> Result<Vec<Piece>> {
    Ok(read_file(store, identity)?.0)
}

/// Removes the quarantine durably. All its records are in the log files or were given up.
pub(crate) fn remove(store: &dyn FileStore) -> Result<()> {
    if store.names()?.iter().any(|name| name == NAME) {
        store.remove(NAME)?;
        store.sync_names()?;
    }
    Ok(())
}

/// The pieces before the first one that is incomplete, and where they end.
fn read_file(store: &dyn FileStore, identity: Identity) -> Result<(Vec<Piece>, u64)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    if !store.names()?.iter().any(|name| name == NAME) {
        return Ok((pieces, at));
    }
    let file = store.open(NAME)?;
    let len_bytes = file.len_bytes()?;
    while at + HEADER_BYTES as u64 <= len_bytes {
        let mut header = RawQuarantined::new_zeroed();
        file.read(at, header.as_mut_bytes())?;
        let bytes_at = at + HEADER_BYTES as u64;
        let count = u64::from(header.len_bytes.get());
        if count == 0 || count > len_bytes - bytes_at {
            break;
        }
        let mut bytes = vec![0; usize::try_from(count).expect("fits memory")];
        file.read(bytes_at, &mut bytes)?;
        let lsn = header.lsn.get();
        if RawQuarantined::new(identity, lsn, &bytes).as_bytes() != header.as_bytes() {
            break;
        }
        if lsn.checked_add(count).is_none_or(|end| end > u64::MAX / 2) {
            let text = format!("{NAME} holds records at {lsn}, where none can be");
            return Err(LogError::Incompatible(text));
        }
        pieces.push(Piece { stream: identity.stream, lsn, bytes });
        at = bytes_at + count;
    }
    Ok((pieces, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamId;
    use device::{Directory, Folder, Trust};

    const OURS: Identity = Identity { stream: StreamId(1), salt: 5 };

    fn piece(lsn: u64, len_bytes: usize) -> Piece {
        Piece { stream: OURS.stream, lsn, bytes: vec![lsn as u8; len_bytes] }
    }

    #[test]
    fn what_is_kept_is_found_once_and_up_to_a_torn_end() {
        let test_dir = tempfile::tempdir().expect("directory");
        let store =
            Directory::new(Folder::open(test_dir.path(), Trust::own()).expect("directory"), 0o600);
        assert_eq!(read(&store, OURS).expect("none"), []);
        let pieces = [piece(0, 100), piece(200, 40), piece(100, 100)];
        quarantine(&store, OURS, &[&pieces[0], &pieces[1]]).expect("keep");
        quarantine(&store, OURS, &[&pieces[1], &pieces[2], &piece(20, 30)]).expect("keep");
        assert_eq!(read(&store, OURS).expect("read"), pieces);
        let path = test_dir.path().join(NAME);
        let whole = std::fs::read(&path).expect("file");
        for len_bytes in 0..whole.len() {
            std::fs::write(&path, &whole[..len_bytes]).expect("cut");
            let count = [124, 188, 312].iter().filter(|end| **end <= len_bytes).count();
            assert_eq!(read(&store, OURS).expect("read"), pieces[..count], "{len_bytes}");
        }
        quarantine(&store, OURS, &[&pieces[2]]).expect("keep");
        assert_eq!(read(&store, OURS).expect("read"), pieces);
        let other = Identity { salt: 6, ..OURS };
        assert_eq!(read(&store, other).expect("another's"), []);
        remove(&store).expect("remove");
        remove(&store).expect("none");
        assert_eq!(read(&store, OURS).expect("none"), []);
    }

    #[test]
    fn golden_bytes() {
        let raw = RawQuarantined::new(OURS, 3, b"abcd");
        let mut golden = b"\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x04\0\0\0".to_vec();
        let crc = crc32c::crc32c(&[&golden[..], &[0; 4], b"abcd"].concat());
        golden.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(raw.as_bytes(), golden);
    }
}
