//! POSIX access control lists: ext4's form on disk, Linux's form in `system.posix_acl_*`
//! attributes, and their rules (which list is valid, and how chmod and inheritance change it).
//!
//! ```text
//! disk   version 1 (u32), entries: tag, perm (u16 each), id (u32) only for named users and groups
//! xattr  version 2 (u32), entries: tag, perm (u16 each), id (u32, all ones if it has no meaning)
//! ```

use crate::error::{Error, Result};

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const PERMISSIONS: u16 = 0o7;

/// The kind of user that an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    UserObject,
    User,
    GroupObject,
    Group,
    Mask,
    Other,
}

impl Tag {
    fn from_number(number: u16) -> Option<Tag> {
        Some(match number {
            0x01 => Tag::UserObject,
            0x02 => Tag::User,
            0x04 => Tag::GroupObject,
            0x08 => Tag::Group,
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }

    fn number(self) -> u16 {
        match self {
            Tag::UserObject => 0x01,
            Tag::User => 0x02,
            Tag::GroupObject => 0x04,
            Tag::Group => 0x08,
            Tag::Mask => 0x10,
            Tag::Other => 0x20,
        }
    }

    fn has_id(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

/// A valid access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

/// Removes `N` bytes from the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

fn take_tag_and_permissions(bytes: &mut &[u8]) -> Option<(Tag, u16)> {
    let tag = Tag::from_number(u16::from_le_bytes(take(bytes)?))?;
    Some((tag, u16::from_le_bytes(take(bytes)?)))
}

impl Acl {
    /// From an attribute's value in Linux's form. `None`: a list without entries, which removes the
    /// list.
    pub(crate) fn from_xattr(value: &[u8]) -> Result<Option<Acl>> {
        let mut rest = value;
        match take(&mut rest).map(u32::from_le_bytes) {
            Some(XATTR_VERSION) => {}
            Some(_) => return Err(Error::NotSupported),
            None => return Err(Error::InvalidArgument),
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let entry = Self::take_xattr_entry(&mut rest).ok_or(Error::InvalidArgument)?;
            entries.push(entry);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Acl(entries);
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Error::InvalidArgument) }
    }

    fn take_xattr_entry(bytes: &mut &[u8]) -> Option<Entry> {
        let (tag, permissions) = take_tag_and_permissions(bytes)?;
        let id = u32::from_le_bytes(take(bytes)?);
        Some(Entry { tag, permissions, id: if tag.has_id() { id } else { NO_ID } })
    }

    /// From the bytes on disk.
    pub(crate) fn from_disk(value: &[u8]) -> Result<Acl> {
        let corrupt = || Error::corrupt("access control list", "an extended attribute");
        let mut rest = value;
        if take(&mut rest).map(u32::from_le_bytes) != Some(DISK_VERSION) {
            return Err(corrupt());
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            entries.push(Self::take_disk_entry(&mut rest).ok_or_else(corrupt)?);
        }
        let acl = Acl(entries);
        if acl.is_valid() { Ok(acl) } else { Err(corrupt()) }
    }

    fn take_disk_entry(bytes: &mut &[u8]) -> Option<Entry> {
        let (tag, permissions) = take_tag_and_permissions(bytes)?;
        let id = if tag.has_id() { u32::from_le_bytes(take(bytes)?) } else { NO_ID };
        Some(Entry { tag, permissions, id })
    }

    /// The bytes on disk.
    pub(crate) fn to_disk(&self) -> Vec<u8> {
        self.encode(DISK_VERSION, |entry| entry.tag.has_id())
    }

    /// The attribute's value in Linux's form.
    pub(crate) fn to_xattr(&self) -> Vec<u8> {
        self.encode(XATTR_VERSION, |_| true)
    }

    fn encode(&self, version: u32, with_id: impl Fn(&Entry) -> bool) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend(entry.tag.number().to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            if with_id(entry) {
                bytes.extend(entry.id.to_le_bytes());
            }
        }
        bytes
    }

    /// Whether there are exactly one owner, one group and one other entry, in the order of the
    /// tags. Named entries must have an id, and require exactly one mask entry.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let named = count(Tag::User) + count(Tag::Group) > 0;
        let masks = count(Tag::Mask);
        self.0.is_sorted_by_key(|entry| entry.tag)
            && self.0.iter().all(|entry| entry.permissions & !PERMISSIONS == 0)
            && self.0.iter().all(|entry| !entry.tag.has_id() || entry.id != NO_ID)
            && [Tag::UserObject, Tag::GroupObject, Tag::Other].iter().all(|tag| count(*tag) == 1)
            && (masks == 1 || (masks == 0 && !named))
    }

    fn permissions(&self, tag: Tag) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn set_permissions(&mut self, tag: Tag, permissions: u16) {
        for entry in self.0.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// The tag whose permissions the group bits of the mode show.
    fn group_class(&self) -> Tag {
        if self.permissions(Tag::Mask).is_some() { Tag::Mask } else { Tag::GroupObject }
    }

    /// The nine permission bits of the mode that this list shows.
    pub(crate) fn mode(&self) -> u16 {
        let bits = |tag| self.permissions(tag).expect("a valid list has this entry");
        bits(Tag::UserObject) << 6 | bits(self.group_class()) << 3 | bits(Tag::Other)
    }

    /// Whether the mode expresses the whole list, so that it need not be stored.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// Changes an access list as chmod does.
    pub(crate) fn chmod(&mut self, mode: u16) {
        self.set_permissions(Tag::UserObject, mode >> 6 & PERMISSIONS);
        self.set_permissions(self.group_class(), mode >> 3 & PERMISSIONS);
        self.set_permissions(Tag::Other, mode & PERMISSIONS);
    }

    /// Turns a parent's default list into the access list of a new inode that is made with `mode`.
    /// Returns the nine permission bits of the mode.
    pub(crate) fn inherit(&mut self, mode: u16) -> u16 {
        self.chmod(self.mode() & mode);
        self.mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// u::rwx, u:1000:rw-, g::r-x, m::rwx, o::r--.
    const DISK: [u8; 28] = [
        1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 6, 0, 0xe8, 3, 0, 0, 4, 0, 5, 0, 0x10, 0, 7, 0, 0x20, 0, 4, 0,
    ];

    fn xattr(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn golden_conversion() {
        let acl = Acl::from_disk(&DISK).unwrap();
        let expected =
            [(1, 7, NO_ID), (2, 6, 1000), (4, 5, NO_ID), (0x10, 7, NO_ID), (0x20, 4, NO_ID)];
        assert_eq!(acl.to_xattr(), xattr(&expected));
        let back = Acl::from_xattr(&xattr(&expected)).unwrap().unwrap();
        assert_eq!(back, acl);
        assert_eq!(back.to_disk(), DISK);
        assert_eq!(acl.mode(), 0o774);
        assert!(!acl.is_minimal());
    }

    #[test]
    fn chmod_changes_the_mask_and_not_the_group() {
        let mut acl = Acl::from_disk(&DISK).unwrap();
        acl.chmod(0o640);
        assert_eq!(acl.mode(), 0o640);
        assert_eq!(acl.permissions(Tag::GroupObject), Some(5));
        assert_eq!(acl.permissions(Tag::Mask), Some(4));
    }

    #[test]
    fn inheriting_takes_the_mode_away() {
        let mut acl = Acl::from_disk(&DISK).unwrap();
        assert_eq!(acl.inherit(0o666), 0o664);
        assert_eq!(acl.permissions(Tag::User), Some(6));
        let minimal = xattr(&[(1, 7, NO_ID), (4, 5, NO_ID), (0x20, 5, NO_ID)]);
        let mut acl = Acl::from_xattr(&minimal).unwrap().unwrap();
        assert_eq!(acl.inherit(0o700), 0o700);
        assert!(acl.is_minimal());
    }

    #[test]
    fn invalid_lists_are_refused() {
        let lists: [&[(u16, u16, u32)]; 7] = [
            &[(1, 7, NO_ID), (4, 5, NO_ID)],
            &[(4, 5, NO_ID), (1, 7, NO_ID), (0x20, 5, NO_ID)],
            &[(1, 8, NO_ID), (4, 5, NO_ID), (0x20, 5, NO_ID)],
            &[(1, 7, NO_ID), (2, 7, 5), (4, 5, NO_ID), (0x20, 5, NO_ID)],
            &[(1, 7, NO_ID), (2, 7, NO_ID), (4, 5, NO_ID), (0x10, 7, NO_ID), (0x20, 5, NO_ID)],
            &[(1, 7, NO_ID), (1, 7, NO_ID), (4, 5, NO_ID), (0x20, 5, NO_ID)],
            &[(1, 7, NO_ID), (4, 5, NO_ID), (0x40, 5, NO_ID)],
        ];
        for list in lists {
            assert!(Acl::from_xattr(&xattr(list)).is_err(), "{list:?}");
        }
        assert!(Acl::from_xattr(&xattr(&[])).unwrap().is_none());
        for len in 0..DISK.len() {
            // A prefix is cut inside of an entry or lacks one that is needed.
            assert!(Acl::from_disk(&DISK[..len]).is_err(), "{len} bytes");
        }
    }
}
