//! The attributes by which an inode asks for a data mode, or declares that it needs atomic writes.

use super::set::XattrName;
use super::stored::load;
use crate::Result;
use crate::data_mode::{
    ATOMIC_VOLUME_XATTR, ATOMIC_XATTR, Asked, DATA_MODE_XATTR, DataMode, parse_declared,
};
use crate::facts::Source;
use crate::inode::Inode;

/// The name of [`DATA_MODE_XATTR`], parsed.
pub(crate) fn mode_attribute() -> XattrName {
    parsed(DATA_MODE_XATTR)
}

/// The name of [`ATOMIC_XATTR`], parsed.
pub(crate) fn atomic_attribute() -> XattrName {
    parsed(ATOMIC_XATTR)
}

/// The name of [`ATOMIC_VOLUME_XATTR`], parsed.
pub(crate) fn atomic_volume_attribute() -> XattrName {
    parsed(ATOMIC_VOLUME_XATTR)
}

fn parsed(name: &str) -> XattrName {
    XattrName::parse(name.as_bytes()).expect("a good name")
}

/// What the attributes of the inode ask for. Values that other tools have written and that make no
/// sense ask for nothing.
pub(crate) fn asked(source: &impl Source, inode: &Inode) -> Result<Asked> {
    let stored = load(source, inode)?;
    let value = |name: &XattrName| stored.in_inode.get(name).or_else(|| stored.in_block.get(name));
    let mode = value(&mode_attribute()).and_then(|value| std::str::from_utf8(value).ok());
    let declared_bytes = value(&atomic_attribute()).and_then(parse_declared);
    Ok(Asked { mode: mode.and_then(DataMode::from_name), declared_bytes })
}
