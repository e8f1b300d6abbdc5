//! Names: looking them up, making, moving and removing them.

use ext4::{Attr, Error, FileKind, InodeNo, NewNode, Owner, RenameHow};
use fuse::abi::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
use fuse::{CAP_FSETID, Caller};
use rustix::io::Errno;

use crate::access_lists::has_access_list;
use crate::adapter::atomic::writes::AtomicSizes;
use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;
use crate::adapter::operations::ioctl::FS_SYNC_FL;
use crate::adapter::state::Adapter;
use crate::convert::{
    SET_GROUP_ID, SET_GROUP_ID_PROGRAM, entry_out, inode_of, kind_of_mode, negative_entry,
    permissions,
};
use crate::session_options::Order;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_WHITEOUT_NOREPLACE: u32 = RENAME_WHITEOUT | RENAME_NOREPLACE;

impl Adapter {
    /// Says so where the kernel learns of a file with `chattr +S`, and collects its writes all the
    /// same.
    pub(super) fn note_sync_flag(&self, attr: &Attr) {
        let is_sync = attr.kind == FileKind::Regular && attr.flags & FS_SYNC_FL != 0;
        if is_sync && self.order() == Order::Sync {
            self.sync_flag_seen.call_once(|| {
                tracing::warn!(
                    "inode {}: its writes are not durable when they return, as chattr +S asks for: \
                     that needs a mount with order=history",
                    attr.ino.0
                );
            });
        }
    }
}

impl Call<'_, '_> {
    pub(super) fn lookup(&mut self) -> Outcome {
        let ino = self.ino()?;
        let name = self.body.take_name()?;
        let atomic_sizes = self.atomic_sizes();
        let found = match name {
            // These two come from file handles (NFS, open_by_handle_at) alone.
            b"." => self.pin_existing(ino),
            b".." => self.parent_of(ino).and_then(|parent| self.pin_existing(parent)),
            _ => self.volume.lookup(ino, name),
        };
        match found {
            Ok(attr) => match self.check_access_list(&attr) {
                Ok(()) => self.push_entry(&attr, &atomic_sizes),
                refused => {
                    self.volume.forget(attr.ino, 1);
                    refused
                }
            },
            Err(Error::NotFound) => Ok(self.reply.push(&negative_entry())?),
            Err(error) => Err(error.into()),
        }
    }

    fn push_entry(&mut self, attr: &Attr, atomic_sizes: &AtomicSizes<'_>) -> Outcome {
        self.adapter.note_sync_flag(attr);
        let mut out = entry_out(attr);
        atomic_sizes.correct(attr.ino, &mut out.attr.size, &mut out.attr_valid);
        Ok(self.reply.push(&out)?)
    }

    /// Refuses a file with an access list that the kernel would not obey.
    fn check_access_list(&self, attr: &Attr) -> Outcome {
        let is_allowed = self.adapter.offers_xattrs || !attr.may_have_xattrs;
        if is_allowed || !has_access_list(&self.volume, attr.ino)? {
            return Ok(());
        }
        self.adapter.access_list_seen.call_once(|| {
            let ino = attr.ino.0;
            tracing::warn!(
                "inode {ino}: refused, because it has an access list and the mount has noxattr"
            );
        });
        Err(Errno::OPNOTSUPP.into())
    }

    fn pin_existing(&self, ino: InodeNo) -> ext4::Result<Attr> {
        // An inode without a name is not pinned: `forget` would free it a second time.
        self.existing(ino)?;
        self.volume.pin(ino);
        // It could have been freed, and be another file, after the look.
        self.existing(ino).inspect_err(|_| self.volume.forget(ino, 1))
    }

    fn existing(&self, ino: InodeNo) -> ext4::Result<Attr> {
        match self.volume.get_attr(ino) {
            Ok(attr) if attr.link_count == 0 => Err(Error::NotFound),
            found => found,
        }
    }

    fn parent_of(&self, ino: InodeNo) -> ext4::Result<InodeNo> {
        let mut parent = Err(Error::NotFound);
        self.volume.read_dir(ino, 0, &mut |entry| {
            if entry.name == b".." {
                parent = Ok(entry.ino);
            }
            parent.is_err()
        })?;
        parent
    }

    pub(super) fn readlink(&mut self) -> Outcome {
        let target = self.volume.read_link(self.ino()?)?;
        Ok(self.reply.push_bytes(&target)?)
    }

    pub(super) fn symlink(&mut self) -> Outcome {
        let name = self.body.take_name()?;
        let target = self.body.take_string()?;
        self.make(name, NewNode::Symlink(target), 0o777, 0)
    }

    pub(super) fn mknod(&mut self) -> Outcome {
        let mknod: MknodIn = self.body.take()?;
        let name = self.body.take_name()?;
        let node = match kind_of_mode(mknod.mode).ok_or(Errno::INVAL)? {
            FileKind::Regular => NewNode::Regular,
            FileKind::Directory | FileKind::Symlink => return Err(Errno::INVAL.into()),
            kind => NewNode::Special(kind, mknod.rdev),
        };
        self.make(name, node, permissions(mknod.mode), permissions(mknod.umask))
    }

    pub(super) fn mkdir(&mut self) -> Outcome {
        let mkdir: MkdirIn = self.body.take()?;
        let name = self.body.take_name()?;
        self.make(name, NewNode::Directory, permissions(mkdir.mode), permissions(mkdir.umask))
    }

    /// The owner of what this request makes.
    pub(super) fn owner(&self) -> Owner {
        Owner { uid: self.header.uid, gid: self.header.gid }
    }

    pub(super) fn make(
        &mut self,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
        umask: u16,
    ) -> Outcome {
        let parent = self.ino()?;
        let permissions = match node {
            NewNode::Directory => permissions,
            _ => self.without_foreign_group_id(parent, permissions)?,
        };
        let owner = self.owner();
        let attr = self.volume.make(parent, name, node, permissions, umask, owner)?;
        self.adapter.note_sync_flag(&attr);
        Ok(self.reply.push(&entry_out(&attr))?)
    }

    /// A set-group-ID directory gives its group to what is made in it. A program that runs with
    /// that group is not for everybody to make. (Kernels from 6.0 on see to that themselves.)
    fn without_foreign_group_id(&self, parent: InodeNo, permissions: u16) -> ext4::Result<u16> {
        if permissions & SET_GROUP_ID_PROGRAM != SET_GROUP_ID_PROGRAM {
            return Ok(permissions);
        }
        let dir = self.volume.get_attr(parent)?;
        if dir.mode & SET_GROUP_ID == 0 {
            return Ok(permissions);
        }
        let may = self.may_give_group(dir.gid);
        Ok(if may { permissions } else { permissions & !SET_GROUP_ID })
    }

    /// Whether the sender may make a program that runs with this group.
    fn may_give_group(&self, gid: u32) -> bool {
        let caller = Caller::of(&self.header);
        caller.is_in_group(gid) || caller.has_capability(CAP_FSETID)
    }

    /// Whether the file has a set-group-ID bit that a change by this sender takes off although its
    /// group cannot execute it.
    pub(super) fn drops_group_id(&self, ino: InodeNo) -> ext4::Result<bool> {
        let attr = self.volume.get_attr(ino)?;
        Ok(attr.mode & SET_GROUP_ID_PROGRAM == SET_GROUP_ID && !self.may_give_group(attr.gid))
    }

    pub(super) fn unlink(&mut self) -> Outcome {
        let name = self.body.take_name()?;
        Ok(self.volume.unlink(self.ino()?, name)?)
    }

    pub(super) fn rmdir(&mut self) -> Outcome {
        let name = self.body.take_name()?;
        Ok(self.volume.rmdir(self.ino()?, name)?)
    }

    pub(super) fn rename(&mut self) -> Outcome {
        let rename: RenameIn = self.body.take()?;
        self.rename_to(rename.newdir, RenameHow::Replace)
    }

    pub(super) fn rename2(&mut self) -> Outcome {
        let rename: Rename2In = self.body.take()?;
        let how = match rename.flags {
            0 => RenameHow::Replace,
            RENAME_NOREPLACE => RenameHow::NoReplace,
            RENAME_EXCHANGE => RenameHow::Exchange,
            // The kernel has seen that the new name is free if it must be.
            RENAME_WHITEOUT | RENAME_WHITEOUT_NOREPLACE => RenameHow::Whiteout(self.owner()),
            _ => return Err(Errno::INVAL.into()),
        };
        self.rename_to(rename.newdir, how)
    }

    fn rename_to(&mut self, new_parent: u64, how: RenameHow) -> Outcome {
        let (parent, new_parent) = (self.ino()?, inode_of(new_parent)?);
        let name = self.body.take_name()?;
        let new_name = self.body.take_name()?;
        if self.adapter.order() == Order::Sync {
            self.flush_before_replacing((parent, name), (new_parent, new_name), &how)?;
        }
        Ok(self.volume.rename(parent, name, new_parent, new_name, how)?)
    }

    /// Programs write a file and rename it over another one, often without a sync and before they
    /// close it. After a crash the name has the content of one of the two. (ext4 sees to it by
    /// `auto_da_alloc`.)
    fn flush_before_replacing(
        &self,
        from: (InodeNo, &[u8]),
        over: (InodeNo, &[u8]),
        how: &RenameHow,
    ) -> Outcome {
        if matches!(how, RenameHow::NoReplace | RenameHow::Whiteout(_)) {
            return Ok(());
        }
        // The kernel holds the locks of both directories.
        if let (Some(file), Some(replaced)) = (self.peek(from)?, self.peek(over)?) {
            self.flush_before_naming(&file)?;
            if matches!(how, RenameHow::Exchange) {
                self.flush_before_naming(&replaced)?;
            }
        }
        Ok(())
    }

    /// What has this name, without a lookup of the kernel's.
    fn peek(&self, (parent, name): (InodeNo, &[u8])) -> ext4::Result<Option<Attr>> {
        match self.volume.lookup(parent, name) {
            Ok(attr) => {
                self.volume.forget(attr.ino, 1);
                Ok(Some(attr))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn link(&mut self) -> Outcome {
        let link: LinkIn = self.body.take()?;
        let name = self.body.take_name()?;
        let ino = inode_of(link.oldnodeid)?;
        if self.adapter.order() == Order::Sync {
            let file = self.volume.get_attr(ino)?;
            if file.link_count == 0 {
                self.flush_before_naming(&file)?;
            }
        }
        let atomic_sizes = self.atomic_sizes();
        let attr = self.volume.link(ino, self.ino()?, name)?;
        self.push_entry(&attr, &atomic_sizes)
    }
}

#[cfg(test)]
mod tests {
    use ext4::DataMode;
    use fuse::abi::InHeader;
    use fuse::{Body, Reply};

    use super::*;
    use crate::adapter::harness::adapter;

    /// The mode of a new file in a set-group-ID directory of group 500, made by this caller.
    fn mode_of_program(adapter: &crate::adapter::Adapter, caller: InHeader, mode: u16) -> u16 {
        let volume = adapter.volume.read();
        let volume = volume.as_ref().unwrap();
        let parent = match volume.lookup(InodeNo::ROOT, b"shared") {
            Ok(attr) => attr.ino,
            Err(_) => {
                let owner = Owner { uid: 0, gid: 500 };
                let (root, node) = (InodeNo::ROOT, NewNode::Directory);
                volume.as_root().make(root, b"shared", node, 0o2777, 0, owner).unwrap().ino
            }
        };
        let header = InHeader { nodeid: u64::from(parent.0), ..caller };
        let mut room = [0; 256];
        let (body, reply) = (Body::whole(&[]), &mut Reply::new(&mut room));
        let mut call = Call { adapter, volume: volume.as_root(), header, body, reply };
        assert!(call.make(b"program", NewNode::Regular, mode, 0).is_ok());
        let attr = volume.lookup(parent, b"program").unwrap();
        assert_eq!(attr.gid, 500);
        volume.unlink(parent, b"program").unwrap();
        attr.mode & 0o7777
    }

    #[test]
    fn a_program_with_the_group_of_its_directory_is_for_its_members_to_make() {
        let adapter = adapter(DataMode::Auto);
        // The caller is no process that can be looked at, so its groups are not known.
        let caller = |uid, gid| InHeader { uid, gid, ..InHeader::default() };
        assert_eq!(mode_of_program(&adapter, caller(1000, 100), 0o2755), 0o755);
        assert_eq!(mode_of_program(&adapter, caller(1000, 100), 0o6711), 0o4711);
        assert_eq!(mode_of_program(&adapter, caller(1000, 500), 0o2755), 0o2755);
        assert_eq!(mode_of_program(&adapter, caller(0, 0), 0o2755), 0o2755);
        // The group may not execute this file.
        assert_eq!(mode_of_program(&adapter, caller(1000, 100), 0o2644), 0o2644);
    }
}
