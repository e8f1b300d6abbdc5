//! The quarantine of a stream: synced records that are neither in its log files nor in the group
//! log.
//!
//! The log files are damaged or cannot be written, or a process that drains the stream was stopped,
//! and the group log goes on without these records. They go to a file `quarantine` beside the log
//! files. Until the stream is recovered they count as part of the group log.
//!
//! The file may be long, or say so: it is not read into memory as a whole.

use device::{FileStore, StoredFile};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::group::Piece;
use crate::format::record::Identity;
use crate::{LogError, Result};

/// Name of the file. Part of the format.
const NAME: &str = "quarantine";

/// Most bytes of one piece. The longest record is half of it.
pub(crate) const PIECE_BYTES_MAX: u64 = 32 << 20;
/// Most pieces of a file. A pool has not so many records.
const PIECE_COUNT_MAX: usize = 1 << 20;
/// Bytes that are read at once.
const STEP_BYTES: u64 = 64 << 10;

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

/// Records of a stream that are in its quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Position of the first one in the stream.
    pub(crate) lsn: u64,
    pub(crate) len_bytes: u64,
    /// Where they begin in the file.
    pub(crate) at: u64,
}

/// A stream's quarantine, open for reading.
pub(crate) struct Quarantine {
    /// `None`: there is none.
    file: Option<Box<dyn StoredFile>>,
    /// The pieces before the first one that is incomplete.
    pub(crate) pieces: Vec<Kept>,
    /// Where they end in the file.
    end: u64,
}

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
    let Quarantine { pieces: known, mut end, .. } = Quarantine::open(store, identity)?;
    let is_new = |piece: &&&Piece| {
        let piece_end = piece.lsn + piece.bytes.len() as u64;
        !known
            .iter()
            .any(|known| known.lsn <= piece.lsn && piece_end <= known.lsn + known.len_bytes)
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
    let end = if is_known { end } else { Quarantine::open(store, identity)?.end };
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

/// Removes the quarantine durably. All its records are in the log files or were given up.
pub(crate) fn remove(store: &dyn FileStore) -> Result<()> {
    if store.names()?.iter().any(|name| name == NAME) {
        store.remove(NAME)?;
        store.sync_names()?;
    }
    Ok(())
}

impl Quarantine {
    /// Opens the quarantine of a stream, and checks its pieces.
    pub(crate) fn open(store: &dyn FileStore, identity: Identity) -> Result<Quarantine> {
        let mut found = Quarantine { file: None, pieces: Vec::new(), end: 0 };
        if !store.names()?.iter().any(|name| name == NAME) {
            return Ok(found);
        }
        let file = store.open(NAME)?;
        while let Some(piece) = piece_at(&*file, identity, found.end)? {
            if piece.lsn.checked_add(piece.len_bytes).is_none_or(|end| end > u64::MAX / 2) {
                let text = format!("{NAME} holds records at {}, where none can be", piece.lsn);
                return Err(LogError::Incompatible(text));
            }
            if found.pieces.len() == PIECE_COUNT_MAX {
                let text = format!("{NAME} has more than {PIECE_COUNT_MAX} pieces");
                return Err(LogError::Incompatible(text));
            }
            found.end = piece.at + piece.len_bytes;
            found.pieces.push(piece);
        }
        found.file = Some(file);
        Ok(found)
    }

    /// Fills `buf` with the bytes at `at` in the file.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.file.as_ref().expect("it has pieces");
        Ok(file.read(at, buf)?)
    }
}

/// The piece whose header is at `at`; `None`: there is no whole one.
fn piece_at(file: &dyn StoredFile, identity: Identity, at: u64) -> Result<Option<Kept>> {
    let bytes_at = at + HEADER_BYTES as u64;
    let Some(room_bytes) = file.len_bytes()?.checked_sub(bytes_at) else { return Ok(None) };
    let mut header = RawQuarantined::new_zeroed();
    file.read(at, header.as_mut_bytes())?;
    let len_bytes = u64::from(header.len_bytes.get());
    if len_bytes == 0
        || len_bytes > room_bytes.min(PIECE_BYTES_MAX)
        || header.salt.get() != identity.salt
    {
        return Ok(None);
    }
    let unsummed = RawQuarantined { crc: U32::new(0), ..header };
    let mut crc = crc32c::crc32c(unsummed.as_bytes());
    let mut buf = vec![0; usize::try_from(len_bytes.min(STEP_BYTES)).expect("short")];
    let mut done = 0;
    while done < len_bytes {
        let count = usize::try_from((len_bytes - done).min(STEP_BYTES)).expect("short");
        file.read(bytes_at + done, &mut buf[..count])?;
        crc = crc32c::crc32c_append(crc, &buf[..count]);
        done += count as u64;
    }
    let piece = Kept { lsn: header.lsn.get(), len_bytes, at: bytes_at };
    Ok((crc == header.crc.get()).then_some(piece))
}

#[cfg(test)]
mod tests {
    use host::{Folder, Trust};

    use super::*;
    use crate::StreamId;
    use device::Directory;

    const OURS: Identity = Identity { stream: StreamId(1), salt: 5 };

    /// The pieces with their bytes.
    fn read(store: &dyn FileStore, identity: Identity) -> Result<Vec<Piece>> {
        let found = Quarantine::open(store, identity)?;
        let bytes_of = |kept: &Kept| {
            let mut bytes = vec![0; usize::try_from(kept.len_bytes).expect("short")];
            found.read(kept.at, &mut bytes).map(|()| bytes)
        };
        let piece = |kept: &Kept| {
            let bytes = bytes_of(kept)?;
            Ok(Piece { stream: identity.stream, lsn: kept.lsn, bytes })
        };
        found.pieces.iter().map(piece).collect()
    }

    fn piece(lsn: u64, len_bytes: usize) -> Piece {
        Piece { stream: OURS.stream, lsn, bytes: vec![lsn as u8; len_bytes] }
    }

    #[test]
    fn each_kept_piece_is_found_once_up_to_a_torn_end() {
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

    /// The header of a sparse file says that gigabytes follow.
    #[test]
    fn regression_a_piece_that_is_too_long_is_none() {
        let test_dir = tempfile::tempdir().expect("directory");
        let store =
            Directory::new(Folder::open(test_dir.path(), Trust::own()).expect("directory"), 0o600);
        for (len_bytes, count) in [(PIECE_BYTES_MAX, 1), (PIECE_BYTES_MAX + 1, 0)] {
            let zeros = vec![0; usize::try_from(len_bytes).expect("fits memory")];
            let header = RawQuarantined::new(OURS, 0, &zeros);
            std::fs::write(test_dir.path().join(NAME), header.as_bytes()).expect("written");
            let file = std::fs::File::options().write(true).open(test_dir.path().join(NAME));
            file.expect("file").set_len(HEADER_BYTES as u64 + len_bytes).expect("sparse");
            let found = Quarantine::open(&store, OURS).expect("read");
            assert_eq!(found.pieces.len(), count, "{len_bytes}");
        }
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
