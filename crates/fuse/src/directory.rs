//! Records of READDIR and READDIRPLUS.
//!
//! A record is a [`Dirent`], the name, and zeros up to a multiple of 8 bytes. In READDIRPLUS an
//! [`crate::abi::EntryOut`] comes before each. A record that does not fit whole is left out: the
//! kernel asks again, from the cursor of the last one that it got.

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::Dirent;
use crate::reply::Reply;

const RECORD_ALIGN_BYTES: usize = 8;

/// Bytes of the record of a name with `name_bytes` bytes.
#[inline]
pub fn dirent_bytes(name_bytes: usize) -> usize {
    (size_of::<Dirent>() + name_bytes).next_multiple_of(RECORD_ALIGN_BYTES)
}

impl Reply<'_> {
    /// Appends the record of one name. `cursor` is where a listing goes on after it, `kind` a
    /// `DT_*` value of readdir(3) (0: unknown). `EOVERFLOW`: the buffer is full.
    pub fn push_dirent(
        &mut self,
        ino: u64,
        cursor: u64,
        kind: u32,
        name: &[u8],
    ) -> Result<(), Errno> {
        let namelen = u32::try_from(name.len()).map_err(|_| Errno::OVERFLOW)?;
        let padding_bytes = dirent_bytes(name.len()) - size_of::<Dirent>() - name.len();
        self.push_bytes(Dirent { ino, off: cursor, namelen, kind }.as_bytes())?;
        self.push_bytes(name)?;
        self.push_bytes(&[0; RECORD_ALIGN_BYTES][..padding_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_padded_to_eight_bytes_and_counted_before_it_is_written() {
        assert_eq!(dirent_bytes(3), 32);
        assert_eq!(dirent_bytes(8), 32);
        assert_eq!(dirent_bytes(9), 40);
        let mut room = [0xff; 64];
        let mut reply = Reply::new(&mut room);
        reply.push_dirent(12, 77, 8, b"abc").unwrap();
        let bytes = reply.payload();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[8..16], 77u64.to_ne_bytes());
        assert_eq!(&bytes[16..32], b"\x03\0\0\0\x08\0\0\0abc\0\0\0\0\0");
        assert_eq!(reply.push_dirent(12, 78, 8, &[b'x'; 9]), Err(Errno::OVERFLOW));
    }
}
