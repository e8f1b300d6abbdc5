//! Access lists where the mount offers no extended attributes.
//!
//! The kernel then checks the permission bits alone. The group's bits hold the mask of the list,
//! and the others' bits hold for a user whom the list denies. So the bits may allow more than the
//! list. Therefore a file with a list gets no node: its LOOKUP fails. A node never gets a list
//! later: none can be set, and a new file inherits one only from a directory with a default list,
//! which has no node. The root has a node always, so a volume whose root has a list must not be
//! mounted so.

use ext4::{InodeNo, Volume};

const PREFIX: &[u8] = b"system.posix_acl_";

/// Whether the file has an access list, or the directory a default one.
pub fn has_access_list(volume: &Volume, ino: InodeNo) -> ext4::Result<bool> {
    Ok(volume.list_xattr(ino)?.iter().any(|name| name.starts_with(PREFIX)))
}
