//! Files of images, most of whose bytes are zeros: only the others are written and read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use device::BlockDevice;
use rustix::fs::SeekFrom;

/// Bytes that are looked at together: all of them are written, or none.
pub(crate) const PIECE_BYTES: usize = 16 << 10;

/// Makes a file at `path` that holds `bytes`.
pub fn write_sparse(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    let pieces = (0..).step_by(PIECE_BYTES).zip(bytes.chunks(PIECE_BYTES));
    pieces.into_iter().try_for_each(|(offset, piece)| write_piece(&file, offset, piece))
}

/// Makes a file at `path` that holds what the device holds.
pub fn save_device(path: &Path, device: &dyn BlockDevice) -> io::Result<()> {
    let file = File::create(path)?;
    let size_bytes = device.size_bytes();
    file.set_len(size_bytes)?;
    let mut piece = [0; PIECE_BYTES];
    for offset in (0..size_bytes).step_by(PIECE_BYTES) {
        let left = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
        let piece = &mut piece[..left.min(PIECE_BYTES)];
        device.read(offset, piece).map_err(io::Error::other)?;
        write_piece(&file, offset, piece)?;
    }
    Ok(())
}

/// The bytes of a file. Its holes take no memory until they are written.
pub fn read_sparse(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size_bytes = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(size_bytes).expect("an image fits into memory")];
    let mut hole = 0;
    while hole < size_bytes {
        let data = match rustix::fs::seek(&file, SeekFrom::Data(hole)) {
            Err(rustix::io::Errno::NXIO) => break,
            found => found?,
        };
        hole = rustix::fs::seek(&file, SeekFrom::Hole(data))?;
        file.read_exact_at(&mut bytes[data as usize..hole as usize], data)?;
    }
    Ok(bytes)
}

/// Writes the piece, unless it is the zeros that a new file holds.
pub(crate) fn write_piece(file: &File, offset: u64, piece: &[u8]) -> io::Result<()> {
    if is_zero(piece) { Ok(()) } else { file.write_all_at(piece, offset) }
}

/// Whether a piece, of at most [`PIECE_BYTES`], is all zeros. The comparison of slices is fast in
/// debug builds, too.
pub(crate) fn is_zero(piece: &[u8]) -> bool {
    piece == &[0; PIECE_BYTES][..piece.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MemoryDevice;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_hold_the_bytes_and_no_block_of_zeros() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut bytes = vec![0; 8 << 20];
        bytes[100] = 1;
        bytes[(3 << 20) + 5] = 2;
        bytes.extend_from_slice(&[0; 512]);
        bytes.extend_from_slice(&[3; 512]);
        let device = MemoryDevice::from_bytes(bytes.clone(), 512);
        let [written, saved] = ["written", "saved"].map(|name| directory.path().join(name));
        write_sparse(&written, &bytes).expect("written");
        save_device(&saved, &device).expect("saved");
        for path in [written, saved] {
            assert!(std::fs::read(&path).expect("read") == bytes);
            assert!(read_sparse(&path).expect("read") == bytes);
            let held_bytes = path.metadata().expect("metadata").blocks() * 512;
            assert!(held_bytes < 1 << 20, "{held_bytes}");
        }
    }

    #[test]
    fn a_shorter_image_replaces_a_longer_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image");
        write_sparse(&path, &[1; 100_000]).expect("written");
        write_sparse(&path, &[0; 70_000]).expect("written");
        assert_eq!(read_sparse(&path).expect("read"), [0; 70_000]);
    }
}
