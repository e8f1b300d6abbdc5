//! The facts of a mounted volume: everything that is known of it and does not change.
//!
//! Readers of metadata need only these facts, and blocks.

use super::checksum::Checksums;
use super::geometry::Geometry;
use super::places::Places;
use crate::layout::superblock::SuperBlock;

/// The facts of a volume.
pub(crate) struct Facts {
    /// Where block groups and their parts are.
    pub(crate) geometry: Geometry,
    /// Which structures have checksums, and their seeds.
    pub(crate) checksums: Checksums,
    /// The superblock as it was read when the volume was opened. Only fields that never change may
    /// be used: features, hash seed, reserved blocks. [`super::source::Source::super_bytes`]
    /// returns the others.
    pub(crate) superblock: Box<SuperBlock>,
    /// Where the file system's own metadata is.
    pub(crate) places: Places,
}
