//! Files, NVRAM and the group log's device: how they are made, opened and checked.

pub(crate) mod chunk_file;
pub(crate) mod denied;
pub(crate) mod files;
pub(crate) mod open;
