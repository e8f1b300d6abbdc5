//! A mount with one file. Without root and /dev/fuse, the test is skipped.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use mount::{MountedFile, OneFile};
use rustix::io::Errno;

const SIZE_BYTES: u64 = 64 << 10;

/// Memory.
struct Bytes(Vec<u8>);

impl Bytes {
    fn span(offset: u64, len: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(offset).unwrap();
        start..start + len
    }
}

impl OneFile for Bytes {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Errno> {
        buf.copy_from_slice(&self.0[Bytes::span(offset, buf.len())]);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.0[Bytes::span(offset, data.len())].copy_from_slice(data);
        Ok(())
    }
}

/// The kernel sends a last request, RELEASE, and ends the connection at once. Often the server is
/// just reading that request then, and the kernel says ECONNABORTED instead of ENODEV.
#[test]
fn regression_its_end_is_no_error_while_a_request_is_read() {
    if !onejournal_testing::can_mount_fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..1500u64 {
        let mounted = MountedFile::mount(Bytes(vec![0; SIZE_BYTES as usize]), dir.path()).unwrap();
        let other: File = OpenOptions::new().read(true).write(true).open(mounted.path()).unwrap();
        other.write_all_at(&round.to_le_bytes(), round).unwrap();
        drop(other);
        let bytes = mounted.end().unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(bytes.0[Bytes::span(round, 8)], round.to_le_bytes());
    }
}
