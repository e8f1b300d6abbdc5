//! Simulated media for tests: block devices, NVRAM and files that lose in a power cut everything
//! that real ones may lose. Also compares structs with the pages of `docs/format`.
//!
//! The product does not link this crate. Tests do, and so do the crates that check the product
//! (`sim`, `fuzz`, `judge`). The lists of what a medium promises are in the crate `device`, because
//! the product refers to them, too: at its head for block devices and NVRAM, at the head of its
//! `files` for files. The simulators break every promise that is not on these lists.

mod block;
mod files;
mod format_page;
mod nvram;
mod power_cut;

pub use block::{Cursor, Event, SimDevice, Trace};
pub use files::{FilesCursor, FilesImage, FilesTrace, SimDirectory, SimFiles};
pub use format_page::{Fields, FormatPage};
pub use nvram::{NvramCursor, NvramEvent, NvramTrace, SimNvram};
pub use power_cut::{CursorOf, Fault, Image, SimClock, Survival, TraceOf, Volatile};
