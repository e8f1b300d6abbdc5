//! Directories: names in blocks, with and without an index.

pub(crate) mod block;
mod entries;
mod hash;
mod htree;
mod htree_node;
mod leaf;
mod seal;

pub(crate) use entries::{find, init, insert, is_empty, parent, remove, set_parent, set_target};
pub(crate) use hash::NameHasher;
pub(crate) use htree::Path;
pub(crate) use leaf::{
    FoundEntry, block_count, default_hasher, is_indexed, kind_of, read_leaf, volume_has_index,
};
pub(crate) use seal::Sealer;
