//! What is known of a mounted volume and does not change while it is mounted.
//!
//! Readers of metadata need these facts and blocks, and nothing else of the volume.

use crate::checksum::Checksums;
use crate::geometry::Geometry;
use crate::layout::superblock::SuperBlock;
use crate::places::Places;

/// The facts of a volume.
pub(crate) struct Facts {
    /// Where block groups and their parts are.
    pub(crate) geometry: Geometry,
    /// Which structures have checksums, and their seeds.
    pub(crate) checksums: Checksums,
    /// The superblock as it was read when the volume was opened. Only fields that never change may be
    /// used: features, hash seed, reserved blocks. [`crate::source::Source::super_bytes`] gives the others.
    pub(crate) superblock: Box<SuperBlock>,
    /// Where the file system's own metadata is.
    pub(crate) places: Places,
}
