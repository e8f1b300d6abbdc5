//! The facts of a mounted volume that do not change, and how metadata is read.

mod checksum;
pub(crate) mod features;
mod geometry;
mod groups;
mod places;
mod source;
mod spenders;
mod value;

pub(crate) use checksum::{Checksums, crc32c};
pub(crate) use features::{compat, incompat, ro_compat};
pub(crate) use geometry::{BITS_PER_BLOCK, Geometry, INODES_PER_BLOCK};
pub(crate) use groups::{
    check_desc, check_not_fixed, collect_fixed, fixed_ranges, merge, read_desc,
};
pub(crate) use places::Places;
pub(crate) use source::Source;
pub use spenders::Spender;
pub(crate) use value::Facts;
