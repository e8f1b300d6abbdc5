//! Reading directories, with or without the attributes of what they name.

use ext4::DirEntry;
use fuse::abi::{EntryOut, ReadIn};
use fuse::{Reply, dirent_bytes};
use rustix::io::Errno;

use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;
use crate::convert::{dirent_kind, entry_out};

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
        let has_atomic = self.atomic_sizes().is_any();
        let adapter = self.adapter;
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
                    // An access list is looked for by LOOKUP.
                    Ok(attr) if attr.may_have_xattrs && !adapter.offers_xattrs => {
                        EntryOut::default()
                    }
                    Ok(attr) if attr.link_count > 0 => {
                        adapter.note_sync_flag(&attr);
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
    reply.payload().len() + head_bytes + dirent_bytes(entry.name.len()) <= capacity_bytes
}

fn push_dirent(reply: &mut Reply<'_>, entry: &DirEntry<'_>) -> Result<(), Errno> {
    let kind = dirent_kind(entry.kind);
    reply.push_dirent(u64::from(entry.ino.0), entry.cursor, kind, entry.name)
}
