//! Operations on extended attributes.
//!
//! Access control lists are converted between their form on disk and Linux's. Setting the access
//! list also sets the mode.

use super::data_modes::{check_ours, check_value};
use super::declared::check_declared;
use crate::data_mode::parse_declared;
use crate::error::{Error, Result};
use crate::inode::{Inode, flags, read_inode};
use crate::memory::Mounted;
use crate::op::{Op, Spending, credits};
use crate::types::{FileKind, InodeNo, XattrFlags};
use crate::xattr::{
    ACL_ACCESS, ACL_DEFAULT, Acl, STORE_CREDITS, USER_INDEX, XattrName, atomic_attribute,
    atomic_volume_attribute, get, load, mode_attribute, store,
};

/// Refuses attributes that this kind of inode cannot have, and inodes that must not change.
pub(super) fn check_change(inode: &Inode, name: &XattrName) -> Result<()> {
    if inode.has_flag(flags::IMMUTABLE | flags::APPEND) {
        return Err(Error::NotPermitted);
    }
    let kind = inode.kind();
    match name.index {
        USER_INDEX if !matches!(kind, FileKind::Regular | FileKind::Directory) => {
            Err(Error::NotPermitted)
        }
        _ if is_acl(name) && kind == FileKind::Symlink => Err(Error::NotSupported),
        _ => Ok(()),
    }
}

fn is_acl(name: &XattrName) -> bool {
    *name == ACL_ACCESS || *name == ACL_DEFAULT
}

/// The bytes to store for an access control list; `None` if nothing has to be stored. Setting the
/// access list also sets the mode.
fn prepare_acl(inode: &mut Inode, name: &XattrName, value: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(acl) = Acl::from_xattr(value)? else { return Ok(None) };
    if *name == ACL_DEFAULT {
        let is_directory = inode.kind() == FileKind::Directory;
        return if is_directory { Ok(Some(acl.to_disk())) } else { Err(Error::NotPermitted) };
    }
    inode.set_permissions(inode.mode() & !0o777 | acl.mode());
    Ok((!acl.is_minimal()).then(|| acl.to_disk()))
}

impl Mounted {
    /// [`Volume::get_xattr`](crate::Volume::get_xattr).
    pub(crate) fn get_xattr(&self, ino: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let name = XattrName::parse(name)?;
        let in_core = self.in_core(ino);
        let _xattr = in_core.xattr.read();
        let inode = read_inode(self, ino)?;
        let value = get(self, &inode, &name)?.ok_or(Error::NoAttribute)?;
        if is_acl(&name) { Ok(Acl::from_disk(&value)?.to_xattr()) } else { Ok(value) }
    }

    /// [`Volume::list_xattr`](crate::Volume::list_xattr).
    pub(crate) fn list_xattr(&self, ino: InodeNo) -> Result<Vec<Vec<u8>>> {
        let in_core = self.in_core(ino);
        let _xattr = in_core.xattr.read();
        let stored = load(self, &read_inode(self, ino)?)?;
        let all = stored.in_inode.0.iter().chain(&stored.in_block.0);
        // A copy of the root directory must not take it along.
        let ours = atomic_volume_attribute();
        let shown = all.filter(|xattr| xattr.name != ours);
        Ok(shown.filter_map(|xattr| xattr.name.full()).collect())
    }
}

impl Spending<'_> {
    /// [`VolumeAs::set_xattr`](crate::VolumeAs::set_xattr), and `also`.
    pub(crate) fn set_xattr(
        &self,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrFlags,
        also: impl Fn(&mut Inode),
    ) -> Result<()> {
        let name = XattrName::parse(name)?;
        check_value(&name, value)?;
        let declared_bytes = (name == atomic_attribute()).then(|| parse_declared(value)).flatten();
        if let Some(bytes) = declared_bytes {
            self.check_writable()?;
            self.check_declaration(ino, bytes)?;
            self.note_declared(bytes)?;
        }
        self.change_xattrs(ino, &name, |op, inode| {
            check_change(inode, &name)?;
            let exists = get(op, inode, &name)?.is_some();
            match how {
                XattrFlags::Create if exists => return Err(Error::Exists),
                XattrFlags::Replace if !exists => return Err(Error::NoAttribute),
                _ => {}
            }
            also(inode);
            if !is_acl(&name) {
                return store(op, inode, &name, Some(value));
            }
            let acl = prepare_acl(inode, &name, value)?;
            store(op, inode, &name, acl.as_deref())
        })?;
        // Once more, if the volume was told to forget it meanwhile.
        declared_bytes.map_or(Ok(()), |bytes| self.note_declared(bytes))
    }

    /// [`VolumeAs::remove_xattr`](crate::VolumeAs::remove_xattr).
    pub(crate) fn remove_xattr(&self, ino: InodeNo, name: &[u8]) -> Result<()> {
        let name = XattrName::parse(name)?;
        check_ours(&name)?;
        self.change_xattrs(ino, &name, |op, inode| {
            check_change(inode, &name)?;
            // Linux lets a list that is not there be removed.
            if get(op, inode, &name)?.is_none() && !is_acl(&name) {
                return Err(Error::NoAttribute);
            }
            store(op, inode, &name, None)
        })
    }

    /// Changes the attributes of an inode by `change`. With `chattr +S` it returns when that is
    /// durable.
    fn change_xattrs(
        &self,
        ino: InodeNo,
        name: &XattrName,
        change: impl Fn(&mut Op<'_>, &mut Inode) -> Result<()>,
    ) -> Result<()> {
        let in_core = self.in_core(ino);
        let (is_mode, is_declaration) = (*name == mode_attribute(), *name == atomic_attribute());
        // A declared file does not take each default.
        let changes_mode = is_mode || is_declaration && !self.settings.data_mode.is_atomic();
        let is_file = || Ok::<_, Error>(read_inode(&**self, ino)?.kind() == FileKind::Regular);
        let content = if changes_mode && is_file()? { Some(in_core.content.write()) } else { None };
        if changes_mode {
            self.check_writable()?;
            self.leave_mode()?;
        }
        let attributes = in_core.xattr.write();
        let is_sync = self.with_op(STORE_CREDITS + credits::PUT_INODE, |op| {
            let mut inode = op.inode(ino)?;
            change(op, &mut inode)?;
            if is_mode || is_declaration {
                check_declared(op, &inode)?;
            }
            inode.set_ctime(op.now());
            inode.bump_version();
            op.put_inode(&inode)?;
            Ok(inode.has_flag(flags::SYNC))
        });
        if is_mode || is_declaration {
            in_core.set_asked(None);
        }
        drop((attributes, content));
        if is_sync? { self.fsync(ino, false) } else { Ok(()) }
    }
}
