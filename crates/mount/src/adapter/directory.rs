//! Reading directories, with or without the attributes of what they name.

use ext4::DirEntry;
use fuse::Reply;
use fuse::abi::{Dirent, EntryOut, ReadIn};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::{Call, Outcome};
use crate::convert::{dirent_kind, entry_out};

const RECORD_ALIGN_BYTES: usize = 8;

impl Call<'_, '_> {
    pub(super) fn readdir(&mut self) -> Outcome {
        let ino = self.ino()?;
        let read: ReadIn = self.body.take()?;
        let capacity_bytes = capacity(&read, self.reply)?;
        let reply = &mut *self.reply;
        self.volume.read_dir(ino, read.offset, &mut |entry| {
            fits(reply, capacity_bytes, 0, &entry) && push_dirent(reply, &entry).is_ok()
        })?;
        Ok(())
    }

    pub(super) fn readdirplus(&mut self) -> Outcome {
        let ino = self.ino()?;
        let read: ReadIn = self.body.take()?;
        let capacity_bytes = capacity(&read, self.reply)?;
        let volume = self.volume;
        let has_atomic = self.unsettled().is_any();
        let reply = &mut *self.reply;
        volume.read_dir(ino, read.offset, &mut |entry| {
            if !fits(reply, capacity_bytes, size_of::<EntryOut>(), &entry) {
                return false;
            }
            let out = match entry.name {
                b"." | b".." => EntryOut::default(),
                // The table of atomic writes comes before the directory's lock, which is held here:
                // the kernel looks each name up then.
                _ if has_atomic => EntryOut::default(),
                // An inode that cannot be read is named without attributes: who asks for them
                // gets the error.
                _ => match volume.get_attr(entry.ino) {
                    Ok(attr) if attr.link_count > 0 => {
                        volume.pin(entry.ino);
                        entry_out(&attr)
                    }
                    _ => EntryOut::default(),
                },
            };
            let pushed = reply.push(&out).and_then(|()| push_dirent(reply, &entry));
            pushed.expect("it was seen to fit");
            true
        })?;
        Ok(())
    }
}

/// How many bytes the kernel takes.
fn capacity(read: &ReadIn, reply: &mut Reply<'_>) -> Result<usize, Errno> {
    let capacity_bytes = usize::try_from(read.size).map_err(|_| Errno::INVAL)?;
    reply.spare(capacity_bytes)?;
    Ok(capacity_bytes)
}

fn fits(reply: &Reply<'_>, capacity_bytes: usize, head_bytes: usize, entry: &DirEntry<'_>) -> bool {
    let record_bytes =
        (size_of::<Dirent>() + entry.name.len()).next_multiple_of(RECORD_ALIGN_BYTES);
    reply.payload().len() + head_bytes + record_bytes <= capacity_bytes
}

fn push_dirent(reply: &mut Reply<'_>, entry: &DirEntry<'_>) -> Result<(), Errno> {
    let name_bytes = entry.name.len();
    let dirent = Dirent {
        ino: u64::from(entry.ino.0),
        off: entry.cursor,
        namelen: u32::try_from(name_bytes).map_err(|_| Errno::OVERFLOW)?,
        kind: dirent_kind(entry.kind),
    };
    let padding_bytes = name_bytes.next_multiple_of(RECORD_ALIGN_BYTES) - name_bytes;
    reply.push_bytes(dirent.as_bytes())?;
    reply.push_bytes(entry.name)?;
    reply.push_bytes(&[0; RECORD_ALIGN_BYTES][..padding_bytes])
}

#[cfg(test)]
mod tests {
    use ext4::{FileKind, InodeNo};

    use super::*;

    #[test]
    fn a_record_is_padded_to_eight_bytes_and_counted_before_it_is_written() {
        let entry =
            DirEntry { ino: InodeNo(12), kind: Some(FileKind::Regular), name: b"abc", cursor: 77 };
        let mut room = [0; 64];
        let mut reply = Reply::new(&mut room);
        assert!(fits(&reply, 32, 0, &entry));
        assert!(!fits(&reply, 31, 0, &entry));
        push_dirent(&mut reply, &entry).unwrap();
        let bytes = reply.payload();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[8..16], 77u64.to_ne_bytes());
        assert_eq!(&bytes[16..32], b"\x03\0\0\0\x08\0\0\0abc\0\0\0\0\0");
    }
}
