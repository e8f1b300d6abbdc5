//! Declarations that writes of a file have to be atomic, and what they forbid.
//!
//! A file or directory is declared by the attribute [`ATOMIC_XATTR`], which new files inherit. Two
//! rules hold for a declared inode:
//!
//! 1. It has no data mode of its own whose writes could be torn. A default mode of that kind is not
//!    used for it ([`Asked::mode_with`](crate::data_mode::Asked::mode_with)).
//! 2. When it is declared, writes of that size are untorn on this mount.
//!
//! A mount must know whether there are declared inodes without reading all of them. So the
//! attribute [`ATOMIC_VOLUME_XATTR`] of the root directory holds the largest size that was ever
//! declared. It is in the transaction of the declaration, or in an earlier one, so no crash leaves
//! a declared inode without it. It is not lowered when a declaration is taken off, because other
//! inodes may have inherited it.
//!
//! [`ATOMIC_XATTR`]: crate::ATOMIC_XATTR
//! [`ATOMIC_VOLUME_XATTR`]: crate::ATOMIC_VOLUME_XATTR

use std::sync::atomic::Ordering;

use super::xattrs::check_change;
use crate::data_mode::parse_declared;
use crate::facts::Source;
use crate::file::flagged_mode;
use crate::inode::{Inode, read_inode};
use crate::memory::Mounted;
use crate::op::{Spending, credits};
use crate::xattr::{self, STORE_CREDITS, atomic_attribute, atomic_volume_attribute};
use crate::{Error, InodeNo, Result};

/// Refuses an inode that is declared and has a mode of its own whose writes could be torn.
pub(super) fn check_declared(source: &impl Source, inode: &Inode) -> Result<()> {
    let asked = xattr::asked(source, inode)?;
    let own = flagged_mode(inode).or(asked.mode);
    let tears = own.is_some_and(|mode| !mode.is_atomic());
    if asked.declared_bytes.is_some() && tears { Err(Error::WouldTear) } else { Ok(()) }
}

impl Mounted {
    /// [`Volume::declared_bytes_of`](crate::Volume::declared_bytes_of).
    pub(crate) fn declared_bytes_of(&self, ino: InodeNo) -> Result<Option<u64>> {
        let in_core = self.in_core(ino);
        let _xattr = in_core.xattr.read();
        Ok(xattr::asked(self, &read_inode(self, ino)?)?.declared_bytes)
    }

    /// [`Volume::declared_bytes`](crate::Volume::declared_bytes).
    pub(crate) fn declared_bytes(&self) -> u64 {
        self.declared_bytes.load(Ordering::Acquire)
    }

    /// Reads what was declared on the volume before. Called once, at the opening. Damaged
    /// attributes do not keep a volume from being opened, as with the kernel's ext4: then nothing
    /// was declared.
    pub(crate) fn load_declared_bytes(&self) -> Result<()> {
        let root = read_inode(self, InodeNo::ROOT)?;
        let value = match xattr::get(self, &root, &atomic_volume_attribute()) {
            Err(error @ Error::Corrupt { .. }) => {
                tracing::warn!(
                    "whether files are declared to need atomic writes is unknown: {error}"
                );
                None
            }
            value => value?,
        };
        let bytes = value.as_deref().and_then(parse_declared).unwrap_or(0);
        self.declared_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Refuses a declaration that does not hold here, before anything is changed.
    pub(super) fn check_declaration(&self, ino: InodeNo, bytes: u64) -> Result<()> {
        if bytes > self.untorn_bytes() {
            return Err(Error::WouldTear);
        }
        let in_core = self.in_core(ino);
        let _xattr = in_core.xattr.read();
        let inode = read_inode(self, ino)?;
        check_change(&inode, &atomic_attribute())?;
        let own = flagged_mode(&inode).or(xattr::asked(self, &inode)?.mode);
        if own.is_some_and(|mode| !mode.is_atomic()) { Err(Error::WouldTear) } else { Ok(()) }
    }
}

impl Spending<'_> {
    /// Stores that inodes of the volume were declared to need `bytes`.
    pub(super) fn note_declared(&self, bytes: u64) -> Result<()> {
        if self.declared_bytes() >= bytes {
            return Ok(());
        }
        let in_core = self.in_core(InodeNo::ROOT);
        let _xattr = in_core.xattr.write();
        let bytes = bytes.max(self.declared_bytes());
        self.store_declared(Some(bytes.to_string().as_bytes()))?;
        self.declared_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    /// [`VolumeAs::forget_declared`](crate::VolumeAs::forget_declared).
    pub(crate) fn forget_declared(&self) -> Result<()> {
        let in_core = self.in_core(InodeNo::ROOT);
        let _xattr = in_core.xattr.write();
        self.store_declared(None)?;
        self.declared_bytes.store(0, Ordering::Release);
        Ok(())
    }

    /// The caller holds the attribute lock of the root.
    fn store_declared(&self, value: Option<&[u8]>) -> Result<()> {
        self.with_op(STORE_CREDITS + credits::PUT_INODE, |op| {
            let mut root = op.inode(InodeNo::ROOT)?;
            xattr::store(op, &mut root, &atomic_volume_attribute(), value)?;
            op.put_inode(&root)
        })
    }
}
