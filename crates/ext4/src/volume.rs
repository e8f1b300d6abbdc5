//! The public interface of a mounted volume. Each method calls the operation that does the work.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use device::BlockDevice;
use journal::{Journal, Synced, WhenDurable};

use crate::data_mode::{DATA_MODE_XATTR, DataMode};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::memory::{Mounted, Pin};
use crate::op::Spending;
use crate::open::{self, JournalChoice, OpenOptions, Opened};
use crate::{
    Allocate, Attr, DirEntry, FileStat, InodeNo, NewNode, Owner, Piece, RenameHow, SeekTo, SetAttr,
    Spender, StatFs, XattrFlags,
};

/// An ext4 file system on a block device, with our journal.
///
/// Every method may be called from any thread. Dropping a volume instead of closing it is like a
/// crash: nothing is brought home.
pub struct Volume {
    opened: Opened,
}

/// A volume as one kind of user changes it: its operations take blocks that this user may use.
/// Everything else is a method of [`Volume`].
#[derive(Clone, Copy)]
pub struct VolumeAs<V> {
    volume: V,
    spender: Spender,
}

/// A volume that only root uses.
pub type RootVolume = VolumeAs<Volume>;

impl RootVolume {
    /// [`Volume::open`].
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<RootVolume> {
        Ok(VolumeAs { volume: Volume::open(device, options)?, spender: Spender::Privileged })
    }

    /// [`Volume::close`].
    pub fn close(self) -> Result<()> {
        self.volume.close()
    }

    /// [`Volume::hand_over`].
    pub fn hand_over(self) -> Result<Vec<Pin>> {
        self.volume.hand_over()
    }
}

impl<V: Borrow<Volume>> Deref for VolumeAs<V> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        self.volume.borrow()
    }
}

/// Opening and closing.
impl Volume {
    /// Opens the ext4 volume on `device`. A journal that is not empty is recovered first, also for
    /// a read-only volume. A volume with unknown features is refused, and nothing is written.
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Volume> {
        Ok(Volume { opened: open::open(device, options)? })
    }

    /// Opens a volume that was opened read-only once more, to write, with this journal. Until one
    /// of the two is dropped or closed, neither may be used but for that.
    pub fn reopen_writable(&self, journal: JournalChoice) -> Result<Volume> {
        Ok(Volume { opened: open::reopen_writable(&self.opened, journal)? })
    }

    /// Ends `read_only`, from which it was reopened, and takes over what it has pinned.
    pub fn take_place_of(&mut self, read_only: Volume) {
        self.opened.take_place_of(read_only.opened);
    }

    /// Brings everything home, frees files that were deleted but still in use, and clears the
    /// feature bits. The volume is then an ordinary clean ext4. If this fails, the volume is in the
    /// same state as after a crash.
    pub fn close(self) -> Result<()> {
        self.opened.close()
    }

    /// Like [`Volume::close`], but leaves files without a name that are pinned. Returns what is
    /// pinned, for [`OpenOptions::pins`] of the process that opens the volume next. If there is
    /// none, these files are freed when the volume is opened without pins.
    pub fn hand_over(self) -> Result<Vec<Pin>> {
        self.opened.hand_over()
    }

    fn mounted(&self) -> &Mounted {
        &self.opened.mounted
    }
}

/// Names.
impl Volume {
    /// Looks a name up (`.` and `..` too). Pins the inode.
    pub fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        self.mounted().lookup(parent, name)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, ino: InodeNo) -> Result<Vec<u8>> {
        self.mounted().read_link(ino)
    }

    /// Calls `each` with the entries of a directory, `.` and `..` first. Begins at `cursor`: 0 is
    /// the start, otherwise it is the `cursor` of an entry that was taken. Ends when `each` returns
    /// `false`, which means that it did not take the entry.
    ///
    /// An entry that exists all the time is delivered once, whatever else changes meanwhile.
    pub fn read_dir(
        &self,
        ino: InodeNo,
        cursor: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.mounted().read_dir(ino, cursor, each)
    }

    /// Removes a name of an inode that is not a directory. The inode exists as long as it has other
    /// names or is pinned.
    pub fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.mounted().unlink(parent, name)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.mounted().rmdir(parent, name)
    }
}

/// Pins.
impl Volume {
    /// Pins an inode. While it is pinned it is not freed, even without a name. A pin takes about 5
    /// bytes of memory, and at most 85 if no inode with a number near is pinned.
    pub fn pin(&self, ino: InodeNo) {
        self.mounted().in_core.pin(ino);
    }

    /// Removes `count` pins of an inode. An inode without a name is freed with its last pin.
    pub fn forget(&self, ino: InodeNo, count: u64) {
        self.mounted().forget(ino, count)
    }

    /// Whether files without a name still use space. The space is freed when no program has the
    /// files open any more, which the caller learns a little later than it happens.
    pub fn has_deleted_files(&self) -> bool {
        self.mounted().has_deleted_files()
    }
}

/// Attributes.
impl Volume {
    /// The attributes of an inode, for a program.
    pub fn get_attr(&self, ino: InodeNo) -> Result<Attr> {
        self.mounted().get_attr(ino)
    }

    /// The same for a caller who shows the times to no program: a later change may have the time
    /// of an earlier one, which costs less.
    pub fn peek_attr(&self, ino: InodeNo) -> Result<Attr> {
        self.mounted().peek_attr(ino)
    }

    /// The value of an extended attribute, by its full name. The lists `system.posix_acl_*` are
    /// returned in Linux's form.
    pub fn get_xattr(&self, ino: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        self.mounted().get_xattr(ino, name)
    }

    /// The full names of all extended attributes.
    pub fn list_xattr(&self, ino: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.mounted().list_xattr(ino)
    }
}

/// Content of files.
impl Volume {
    /// Fills `out` from the file's content at `offset`. Returns how many bytes there were: fewer
    /// than asked for only at the end of the file. Holes read as zeros, and so does the rest of the
    /// file's last block, as far as `out` has room for it. Fails after new blocks of the file could
    /// not be written, because a reader must not see what they held before.
    pub fn read(&self, ino: InodeNo, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.read_noting(ino, offset, out, true)
    }

    /// [`Volume::read`]. With `notes_access` the access time may change (see `O_NOATIME` of
    /// open(2)).
    pub fn read_noting(
        &self,
        ino: InodeNo,
        offset: u64,
        out: &mut [u8],
        notes_access: bool,
    ) -> Result<usize> {
        self.mounted().read_noting(ino, offset, out, notes_access)
    }

    /// The most blocks that [`VolumeAs::write_atomic`] can write at once, if it allocates blocks in
    /// few block groups only. 0 if it is not supported.
    pub fn atomic_block_limit(&self) -> usize {
        self.mounted().atomic_block_limit()
    }

    /// The first byte at or after `offset` that is data, or that is in a hole; the end of the file
    /// counts as a hole. `NoSuchOffset` if the offset is not within the file, or no data follow.
    pub fn seek(&self, ino: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        self.mounted().seek(ino, offset, to)
    }

    /// The mode of a file's data. For a directory, the mode of files that will be made in it.
    pub fn data_mode_of(&self, ino: InodeNo) -> Result<DataMode> {
        self.mounted().data_mode_of(ino)
    }
}

/// Writes that a crash does not tear. A file or directory is declared to need them by
/// [`VolumeAs::set_xattr`] with [`crate::ATOMIC_XATTR`]. New files inherit the declaration.
impl Volume {
    /// Says how the caller calls [`VolumeAs::write`]: it passes writes of programs on whole that
    /// are aligned and have at most `bytes` bytes. 0: it may cut or join any writes. Without this
    /// call it passes on everything.
    pub fn set_unsplit_write_bytes(&self, bytes: u64) {
        self.mounted().set_unsplit_write_bytes(bytes);
    }

    /// The largest power of two, at most 1 MiB, such that a write of that many bytes at a multiple
    /// of it is in one transaction, in data modes with atomic writes. A larger write is cut at
    /// multiples of it. 0 on a read-only volume.
    pub fn untorn_bytes(&self) -> u64 {
        self.mounted().untorn_bytes()
    }

    /// [`Volume::untorn_bytes`] with the volume's data mode; 0 if its writes are not atomic.
    pub fn atomic_write_bytes(&self) -> u64 {
        self.mounted().atomic_write_bytes()
    }

    /// The same for a file. For a directory: for new files in it. `InvalidArgument` for other
    /// inodes.
    pub fn atomic_write_bytes_of(&self, ino: InodeNo) -> Result<u64> {
        self.mounted().atomic_write_bytes_of(ino)
    }

    /// Aligned writes of up to so many bytes are declared to need to be atomic.
    pub fn declared_bytes_of(&self, ino: InodeNo) -> Result<Option<u64>> {
        self.mounted().declared_bytes_of(ino)
    }

    /// The largest size that an inode of the volume was declared to need since the volume was made,
    /// or since [`VolumeAs::forget_declared`]; 0: none, or a read-only volume.
    pub fn declared_bytes(&self) -> u64 {
        self.mounted().declared_bytes()
    }
}

/// Durability.
impl Volume {
    /// Returns when everything that was done to the inode before this call is durable. With
    /// `data_only`, only its content and what is needed to reach it. No I/O if that is durable
    /// already.
    pub fn fsync(&self, ino: InodeNo, data_only: bool) -> Result<()> {
        self.mounted().fsync(ino, data_only)
    }

    /// As [`Volume::fsync`], but does not wait for a commit that another thread has begun, and that
    /// is all that has to be waited for: that thread then calls what `leave` returns.
    pub fn fsync_or_leave(
        &self,
        ino: InodeNo,
        data_only: bool,
        leave: impl FnOnce() -> Option<WhenDurable>,
    ) -> Result<Synced> {
        self.mounted().fsync_or_leave(ino, data_only, leave)
    }

    /// Returns when everything that was done to the volume before this call is durable.
    pub fn sync(&self) -> Result<()> {
        self.mounted().sync()
    }
}

/// The volume as a whole.
impl Volume {
    /// The volume's label: up to 16 bytes, none of which is 0.
    pub fn label(&self) -> Result<Vec<u8>> {
        self.mounted().label()
    }

    /// Sets the label durably in the first superblock (the copies keep the old one).
    /// `InvalidArgument` if it is too long.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.mounted().set_label(label)
    }

    /// Free and used space. Blocks that were freed by a transaction that is not committed count as
    /// free: an operation that needs them commits first.
    pub fn stat_fs(&self) -> Result<StatFs> {
        self.mounted().stat_fs()
    }

    /// Whether there is a block that this user may take for a file.
    pub fn has_room(&self, spender: Spender) -> bool {
        self.mounted().has_room(spender)
    }

    /// The counters of a regular file. Waits for a write to the file that is under way.
    pub fn file_stat(&self, ino: InodeNo) -> Result<FileStat> {
        self.mounted().file_stat(ino)
    }

    /// The files with the most bytes written since the mount, at most `limit` of them, in this
    /// order.
    pub fn most_written_files(&self, limit: usize) -> Vec<(InodeNo, FileStat)> {
        self.mounted().most_written_files(limit)
    }
}

/// Who uses the volume, and how.
impl Volume {
    /// The volume as this kind of user changes it.
    pub fn as_spender(&self, spender: Spender) -> VolumeAs<&Volume> {
        VolumeAs { volume: self, spender }
    }

    /// The volume as root changes it.
    pub fn as_root(&self) -> VolumeAs<&Volume> {
        self.as_spender(Spender::Privileged)
    }

    /// Whether the volume is read-only: it was opened so, or the medium failed.
    pub fn is_read_only(&self) -> bool {
        self.mounted().is_read_only()
    }

    /// The data mode of files that do not ask for another one.
    pub fn data_mode(&self) -> DataMode {
        self.mounted().settings.data_mode
    }

    /// The kind of a user with this group, by the superblock.
    pub fn spender(&self, uid: u32, gid: u32) -> Spender {
        self.mounted().facts.spender(uid, gid)
    }

    /// The group whose members may use the blocks that are reserved for root. `None`: only root
    /// may.
    pub fn reserved_group(&self) -> Option<u32> {
        self.mounted().facts.reserved_group()
    }

    /// The engine, for its counters.
    pub fn journal(&self) -> &Journal {
        &self.mounted().journal
    }

    /// Size of the journal in bytes; 0 for a volume that was opened read-only.
    pub fn journal_size_bytes(&self) -> u64 {
        self.opened.journal_size_bytes()
    }
}

/// Names.
impl<V: Borrow<Volume>> VolumeAs<V> {
    pub(crate) fn spending(&self) -> Spending<'_> {
        Spending { volume: self.mounted(), spender: self.spender }
    }

    /// Makes an inode with a name, and pins it. The caller does not apply `umask` to `permissions`.
    /// This call does, if the directory has no default access control list.
    pub fn make(
        &self,
        parent: InodeNo,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
        umask: u16,
        owner: Owner,
    ) -> Result<Attr> {
        self.spending().make(parent, name, node, permissions, umask, owner)
    }

    /// Makes a regular file without a name, as `O_TMPFILE` does. It is an orphan: it is freed with
    /// its last pin, or at the next opening after a crash, unless [`VolumeAs::link`] gives it a
    /// name. It gets owner, access control list and data mode like a file that is made in `parent`.
    /// Pins the inode.
    pub fn make_unnamed(
        &self,
        parent: InodeNo,
        permissions: u16,
        umask: u16,
        owner: Owner,
    ) -> Result<Attr> {
        self.spending().make_unnamed(parent, permissions, umask, owner)
    }

    /// Gives an inode that is not a directory one more name. If [`VolumeAs::make_unnamed`] made it,
    /// this is its first name. Pins the inode.
    pub fn link(&self, ino: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        self.spending().link(ino, parent, name)
    }

    /// Renames `from_name` in `from_parent` to `to_name` in `to_parent`. An inode that had the new
    /// name is replaced, stays (`Exists`), or gets the old name.
    pub fn rename(
        &self,
        from_parent: InodeNo,
        from_name: &[u8],
        to_parent: InodeNo,
        to_name: &[u8],
        how: RenameHow,
    ) -> Result<()> {
        self.spending().rename(from_parent, from_name, to_parent, to_name, how)
    }
}

/// Attributes.
impl<V: Borrow<Volume>> VolumeAs<V> {
    /// Sets attributes in one operation. (A size that cuts off much takes several.) A new mode also
    /// changes the access control list, if there is one.
    pub fn set_attr(&self, ino: InodeNo, set: &SetAttr) -> Result<Attr> {
        self.spending().set_attr(ino, set)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrFlags,
    ) -> Result<()> {
        self.spending().set_xattr(ino, name, value, how, |_| {})
    }

    /// The same, and clears the set-group-ID bit: for an access control list that is set by a user
    /// who is not in the file's group.
    pub fn set_acl_as_stranger(
        &self,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrFlags,
    ) -> Result<()> {
        self.spending().set_xattr(ino, name, value, how, Inode::clear_set_group_id)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, ino: InodeNo, name: &[u8]) -> Result<()> {
        self.spending().remove_xattr(ino, name)
    }

    /// Sets the mode of a file or directory; `None`: the volume's. What the journal holds is
    /// brought home first, so that no block's history mixes modes (FAST'14 §2.2).
    /// [`crate::Error::WouldTear`] if the inode is declared to need atomic writes, and the mode
    /// does not give them.
    pub fn set_data_mode(&self, ino: InodeNo, mode: Option<DataMode>) -> Result<()> {
        let name = DATA_MODE_XATTR.as_bytes();
        match mode {
            Some(mode) => self.set_xattr(ino, name, mode.name().as_bytes(), XattrFlags::Any),
            None => match self.remove_xattr(ino, name) {
                Err(Error::NoAttribute) => Ok(()),
                removed => removed,
            },
        }
    }

    /// Forgets that inodes of the volume were declared. Inodes that are declared stay so.
    pub fn forget_declared(&self) -> Result<()> {
        self.spending().forget_declared()
    }
}

/// Content of files.
impl<V: Borrow<Volume>> VolumeAs<V> {
    /// Writes `data` at `offset`, growing the file as needed. Returns how much was written: less
    /// than asked for if the volume becomes full or the largest file size is reached.
    pub fn write(&self, ino: InodeNo, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_accepting(ino, offset, data, false, &mut |_| {})
    }

    /// [`VolumeAs::write`] that also calls `accepted`, at most once, with the number of bytes that
    /// it will return, when only writing data home is left. `kill`: the writer's writes clear
    /// set-user-ID and set-group-ID.
    ///
    /// After that call only the device can fail, which aborts the journal; the next sync reports
    /// it. Until this function returns, threads that read the content, change it or sync the file
    /// wait. So the writer may be answered in `accepted`, and prepare its next piece meanwhile.
    pub fn write_accepting(
        &self,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
        kill: bool,
        accepted: &mut dyn FnMut(usize),
    ) -> Result<usize> {
        self.spending().write_accepting(ino, offset, data, kill, accepted)
    }

    /// Writes all pieces in one transaction, growing the file as needed. The pieces are ascending
    /// and do not overlap. On an error nothing was written. [`crate::Error::NoSpace`] also means
    /// that one transaction cannot hold them. [`crate::Error::NotSupported`]: the volume's mode may
    /// put data in place over existing data.
    pub fn write_atomic<'a>(&self, ino: InodeNo, pieces: &[Piece<'a>]) -> Result<()> {
        self.spending().write_atomic(ino, pieces)
    }

    /// Allocates, punches or zeroes `len_bytes` bytes from `offset` on.
    pub fn fallocate(
        &self,
        ino: InodeNo,
        how: Allocate,
        offset: u64,
        len_bytes: u64,
    ) -> Result<()> {
        self.spending().fallocate(ino, how, offset, len_bytes)
    }
}

/// Unit tests use the mounted volume directly.
#[cfg(test)]
impl Deref for Volume {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        self.mounted()
    }
}

#[cfg(test)]
impl Volume {
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }
}
