//! What a program asks of a mounted volume: attributes, ioctls, changes of several ranges.
//!
//! The crate has both sides of each format: the calls of a client, and the constants and the parser
//! that the volume (`mount`) answers with.
//!
//! # Storeys
//!
//! ```text
//!   range_write virtual_attribute volume_sync   one kind of request each
//!   fuse                                        no ioctl where it could mean anything
//! ```

mod fuse;
mod range_write;
mod virtual_attribute;
mod volume_sync;

pub use range_write::{RANGES_BYTES_MAX, RANGES_XATTR, Range, RangeError, RangePart, write_ranges};
pub use virtual_attribute::{VIRTUAL_ATTRIBUTE_BYTES, VIRTUAL_ATTRIBUTE_IOCTL, virtual_attribute};
pub use volume_sync::{VOLUME_SYNC_IOCTL, sync_volume};
