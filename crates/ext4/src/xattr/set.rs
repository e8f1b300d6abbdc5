//! A set of extended attributes as stored in an inode or in an external block. It is decoded into
//! plain values, changed, and encoded again as a whole.

use journal::{BLOCK_BYTES, BlockBytes};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::layout::xattr::{
    XATTR_ENTRY_BYTES, XATTR_HEADER_BYTES, XATTR_MAGIC, XattrEntry, XattrHeader,
};

/// Bytes of the magic in the inode, and of the zeros that end the entries.
const WORD_BYTES: usize = 4;

/// An attribute's name as it is stored: the number of its prefix, and the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XattrName {
    pub index: u8,
    pub rest: Vec<u8>,
}

/// `system.posix_acl_access`.
pub(crate) const ACL_ACCESS: XattrName = XattrName { index: 2, rest: Vec::new() };
/// `system.posix_acl_default`.
pub(crate) const ACL_DEFAULT: XattrName = XattrName { index: 3, rest: Vec::new() };

const WHOLE_NAMES: [(u8, &[u8]); 2] =
    [(2, b"system.posix_acl_access"), (3, b"system.posix_acl_default")];
/// `user.`
pub(crate) const USER_INDEX: u8 = 1;
/// `security.`
pub(super) const SECURITY_INDEX: u8 = 6;
const PREFIXES: [(u8, &[u8]); 3] =
    [(USER_INDEX, b"user."), (4, b"trusted."), (SECURITY_INDEX, b"security.")];

impl XattrName {
    /// From a full name such as `user.mime_type`.
    pub(crate) fn parse(name: &[u8]) -> Result<XattrName> {
        if let Some((index, _)) = WHOLE_NAMES.iter().find(|(_, whole)| *whole == name) {
            return Ok(XattrName { index: *index, rest: Vec::new() });
        }
        for (index, prefix) in PREFIXES {
            if let Some(rest) = name.strip_prefix(prefix) {
                return match rest.len() {
                    0 => Err(Error::InvalidArgument),
                    1..=255 => Ok(XattrName { index, rest: rest.to_vec() }),
                    _ => Err(Error::NameTooLong),
                };
            }
        }
        Err(Error::NotSupported)
    }

    /// The full name; `None` if this driver does not know the prefix.
    pub(crate) fn full(&self) -> Option<Vec<u8>> {
        let known = WHOLE_NAMES.iter().filter(|_| self.rest.is_empty()).chain(&PREFIXES);
        let (_, prefix) = known.into_iter().find(|(index, _)| *index == self.index)?;
        Some([prefix, &self.rest[..]].concat())
    }

    /// The order of entries in an external block: by prefix, length, and bytes.
    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.rest.len(), &self.rest)
    }
}

/// One attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xattr {
    pub name: XattrName,
    pub value: Vec<u8>,
}

impl Xattr {
    fn entry_bytes(&self) -> usize {
        XATTR_ENTRY_BYTES + self.name.rest.len().next_multiple_of(4)
    }

    fn value_bytes(&self) -> usize {
        self.value.len().next_multiple_of(4)
    }

    /// `e_hash`: rotates by five bits for each byte of the name, and by sixteen for each word of
    /// the value.
    fn hash(&self) -> u32 {
        let name = self.name.rest.iter().fold(0_u32, |h, byte| h.rotate_left(5) ^ u32::from(*byte));
        self.value.chunks(4).fold(name, |h, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            h.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// The attributes of one place: the inode or the external block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct XattrSet(pub Vec<Xattr>);

fn corrupt(what: &str) -> Error {
    Error::corrupt(what, "extended attributes")
}

impl XattrSet {
    /// Decodes the spare bytes of an inode.
    pub(crate) fn from_inode_area(area: &[u8]) -> Result<XattrSet> {
        match area.split_first_chunk::<WORD_BYTES>() {
            Some((magic, entries)) if *magic == XATTR_MAGIC.to_le_bytes() => decode(entries, 0),
            _ => Ok(XattrSet::default()),
        }
    }

    /// Decodes an external block. Returns also the number of inodes that share it.
    pub(super) fn from_block(block: &BlockBytes) -> Result<(XattrSet, u32)> {
        let (header, _) =
            XattrHeader::ref_from_prefix(block).map_err(|_| corrupt("block header"))?;
        let refcount = header.h_refcount.get();
        if header.h_magic.get() != XATTR_MAGIC || header.h_blocks.get() != 1 || refcount == 0 {
            return Err(corrupt("block header"));
        }
        Ok((decode(block, XATTR_HEADER_BYTES)?, refcount))
    }

    /// The value of an attribute.
    pub(crate) fn get(&self, name: &XattrName) -> Option<&[u8]> {
        self.0.iter().find(|xattr| xattr.name == *name).map(|xattr| &xattr.value[..])
    }

    /// Adds an attribute or replaces its value.
    pub(crate) fn set(&mut self, name: &XattrName, value: &[u8]) {
        match self.0.iter_mut().find(|xattr| xattr.name == *name) {
            Some(xattr) => xattr.value = value.to_vec(),
            None => self.0.push(Xattr { name: name.clone(), value: value.to_vec() }),
        }
    }

    /// Removes an attribute; `false` if it did not exist.
    pub(crate) fn remove(&mut self, name: &XattrName) -> bool {
        let before = self.0.len();
        self.0.retain(|xattr| xattr.name != *name);
        self.0.len() < before
    }

    fn fits(&self, space_bytes: usize) -> bool {
        let needed: usize =
            self.0.iter().map(|xattr| xattr.entry_bytes() + xattr.value_bytes()).sum();
        needed + WORD_BYTES <= space_bytes
    }

    /// Whether the spare bytes of an inode can hold this set.
    pub(super) fn fits_inode_area(&self, area: &[u8]) -> bool {
        self.0.is_empty() || area.len() >= WORD_BYTES && self.fits(area.len() - WORD_BYTES)
    }

    /// Whether a block can hold this set.
    pub(super) fn fits_block(&self) -> bool {
        self.fits(BLOCK_BYTES - XATTR_HEADER_BYTES)
    }

    /// Writes the set into the spare bytes of an inode. It must fit.
    pub(super) fn to_inode_area(&self, area: &mut [u8]) {
        area.fill(0);
        if !self.0.is_empty() {
            let (magic, entries) = area.split_at_mut(WORD_BYTES);
            magic.copy_from_slice(&XATTR_MAGIC.to_le_bytes());
            encode(&self.0, entries, 0, |_| 0);
        }
    }

    /// Writes the set into a block with one owner. It must fit. The caller sets the checksum.
    pub(super) fn to_block(&self, block: &mut BlockBytes) {
        block.fill(0);
        let mut sorted = self.0.clone();
        sorted.sort_by(|a, b| a.name.sort_key().cmp(&b.name.sort_key()));
        encode(&sorted, block, XATTR_HEADER_BYTES, Xattr::hash);
        let header = XattrHeader {
            h_magic: XATTR_MAGIC.into(),
            h_refcount: 1.into(),
            h_blocks: 1.into(),
            h_hash: block_hash(&sorted).into(),
            ..XattrHeader::new_zeroed()
        };
        block[..XATTR_HEADER_BYTES].copy_from_slice(header.as_bytes());
    }
}

/// `h_hash`; 0 if an entry hashes to 0, which forbids sharing.
fn block_hash(sorted: &[Xattr]) -> u32 {
    let hashes: Vec<u32> = sorted.iter().map(Xattr::hash).collect();
    if hashes.contains(&0) {
        return 0;
    }
    hashes.iter().fold(0_u32, |all, hash| all.rotate_left(16) ^ hash)
}

/// Reads the entries that start at `start`; value offsets count from byte 0 of `bytes`.
fn decode(bytes: &[u8], start: usize) -> Result<XattrSet> {
    let (mut at, mut first_value) = (start, bytes.len());
    let mut set = XattrSet::default();
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk::<WORD_BYTES>() {
            Some([0, 0, 0, 0]) => break,
            Some(_) => {}
            None => return Err(corrupt("list without an end")),
        }
        let (entry, names) =
            XattrEntry::ref_from_prefix(rest).map_err(|_| corrupt("entry past the end"))?;
        let name_len = usize::from(entry.e_name_len);
        let name = names.get(..name_len).ok_or_else(|| corrupt("name past the end"))?;
        let value = decode_value(bytes, entry)?;
        if !value.is_empty() {
            first_value = first_value.min(usize::from(entry.e_value_offs.get()));
        }
        let name = XattrName { index: entry.e_name_index, rest: name.to_vec() };
        if set.get(&name).is_some() {
            return Err(corrupt("name that occurs twice"));
        }
        set.0.push(Xattr { name, value: value.to_vec() });
        at += XATTR_ENTRY_BYTES + name_len.next_multiple_of(4);
    }
    if first_value < at + WORD_BYTES {
        return Err(corrupt("value inside of the entries"));
    }
    Ok(set)
}

fn decode_value<'a>(bytes: &'a [u8], entry: &XattrEntry) -> Result<&'a [u8]> {
    if entry.e_value_inum.get() != 0 {
        return Err(corrupt("value in an inode"));
    }
    let start = usize::from(entry.e_value_offs.get());
    let size = usize::try_from(entry.e_value_size.get()).map_err(|_| corrupt("value size"))?;
    if size == 0 {
        return Ok(&[]);
    }
    let end = start.checked_add(size).ok_or_else(|| corrupt("value size"))?;
    bytes.get(start..end).ok_or_else(|| corrupt("value past the end"))
}

/// Writes entries from `start` upwards and values from the end downwards into zeroed bytes.
fn encode(xattrs: &[Xattr], bytes: &mut [u8], start: usize, hash: impl Fn(&Xattr) -> u32) {
    let (mut at, mut value_at) = (start, bytes.len());
    for xattr in xattrs {
        let (name, value) = (&xattr.name.rest, &xattr.value);
        value_at -= xattr.value_bytes();
        let offset = if value.is_empty() { 0 } else { value_at };
        let entry = XattrEntry {
            e_name_len: u8::try_from(name.len()).expect("checked when the name was parsed"),
            e_name_index: xattr.name.index,
            e_value_offs: u16::try_from(offset).expect("inside of a block").into(),
            e_value_inum: 0.into(),
            e_value_size: u32::try_from(value.len()).expect("inside of a block").into(),
            e_hash: hash(xattr).into(),
        };
        bytes[at..at + XATTR_ENTRY_BYTES].copy_from_slice(entry.as_bytes());
        bytes[at + XATTR_ENTRY_BYTES..][..name.len()].copy_from_slice(name);
        bytes[value_at..][..value.len()].copy_from_slice(value);
        at += xattr.entry_bytes();
    }
    assert!(at + WORD_BYTES <= value_at, "the set does not fit");
}

#[cfg(test)]
mod tests {
    use super::*;
    use onejournal_testing::{test_name, tier};

    fn set(contents: &[(&str, &[u8])]) -> XattrSet {
        let mut set = XattrSet::default();
        for (name, value) in contents {
            set.set(&XattrName::parse(name.as_bytes()).unwrap(), value);
        }
        set
    }

    #[test]
    fn names_are_split_and_joined() {
        let names = ["user.a", "trusted.b.c", "security.capability", "system.posix_acl_default"];
        for name in names {
            let parsed = XattrName::parse(name.as_bytes()).unwrap();
            assert_eq!(parsed.full().unwrap(), name.as_bytes());
        }
        for name in ["user.", "user", "system.other", "system.posix_acl_accessx", ""] {
            assert!(XattrName::parse(name.as_bytes()).is_err(), "{name}");
        }
        let long = format!("user.{}", "x".repeat(256));
        assert!(matches!(XattrName::parse(long.as_bytes()), Err(Error::NameTooLong)));
        assert_eq!(XattrName { index: 9, rest: b"c".to_vec() }.full(), None);
    }

    /// A block that Linux 6.18 wrote: user.a = "xyz", user.bb = "12345".
    fn golden() -> BlockBytes {
        let head = [
            0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0, 0x3f, 0x38, 0x49, 0x4b, //
            0xbe, 0x8f, 0x73, 0xef, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            1, 1, 0xf4, 0x0f, 0, 0, 0, 0, 3, 0, 0, 0, 0x78, 0x79, 0x1b, 0, //
            b'a', 0, 0, 0, 2, 1, 0xf8, 0x0f, 0, 0, 0, 0, 5, 0, 0, 0, //
            0x24, 0x38, 0x31, 0x32, b'b', b'b', 0, 0, 0, 0, 0, 0,
        ];
        let mut block = [0; BLOCK_BYTES];
        block[..head.len()].copy_from_slice(&head);
        block[4084..4088].copy_from_slice(b"xyz\0");
        block[4088..4093].copy_from_slice(b"12345");
        block
    }

    #[test]
    fn golden_block_is_read_and_hashed_alike() {
        let golden = golden();
        let (decoded, refcount) = XattrSet::from_block(&golden).unwrap();
        assert_eq!(refcount, 1);
        assert_eq!(decoded, set(&[("user.a", b"xyz"), ("user.bb", b"12345")]));
        let mut block = [0; BLOCK_BYTES];
        set(&[("user.bb", b"12345"), ("user.a", b"xyz")]).to_block(&mut block);
        assert_eq!(block[..16], golden[..16], "header up to the checksum");
        assert_eq!(block[44..52], golden[44..52], "hash and name of the first");
        assert_eq!(block[64..76], golden[64..76], "hash and name of the second, and the end");
    }

    #[test]
    fn both_places_round_trip() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        for _ in 0..tier::count(300) {
            let mut built = XattrSet::default();
            let mut area = vec![0xaa; random.usize(4..128) & !3];
            for n in 0..random.usize(..40) {
                let name = format!("user.{n}{}", "n".repeat(random.usize(..20)));
                let value: Vec<u8> = (0..random.usize(..100)).map(|_| random.u8(..)).collect();
                let mut more = built.clone();
                more.set(&XattrName::parse(name.as_bytes()).unwrap(), &value);
                if more.fits_block() {
                    built = more;
                }
            }
            let mut block = [0xaa; BLOCK_BYTES];
            built.to_block(&mut block);
            let (mut back, refcount) = XattrSet::from_block(&block).unwrap();
            assert_eq!(refcount, 1);
            let by_name = |a: &Xattr, b: &Xattr| a.name.sort_key().cmp(&b.name.sort_key());
            back.0.sort_by(by_name);
            built.0.sort_by(by_name);
            assert_eq!(back, built);
            while !built.fits_inode_area(&area) {
                built.0.pop();
            }
            built.to_inode_area(&mut area);
            assert_eq!(XattrSet::from_inode_area(&area).unwrap(), built);
        }
    }

    #[test]
    fn noise_never_panics() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        let mut good = [0; BLOCK_BYTES];
        set(&[("user.one", b"1"), ("trusted.two", b"22"), ("user.three", &[3; 300])])
            .to_block(&mut good);
        for _ in 0..tier::count(5000) {
            let mut block = good;
            for _ in 0..random.usize(1..6) {
                block[random.usize(..120)] = random.u8(..);
            }
            let _ = XattrSet::from_block(&block);
            let _ = XattrSet::from_inode_area(&block[random.usize(..40)..random.usize(40..4096)]);
        }
    }
}
