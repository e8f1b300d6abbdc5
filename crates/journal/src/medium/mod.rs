//! The place of a journal: a medium, the space on it, and the label of a medium of its own.

mod flushes;
mod label;
mod media;
mod space;

pub(crate) use flushes::Flushes;
pub use label::Label;
pub use media::{Medium, NVRAM_STEP_BYTES};
pub use space::Space;
