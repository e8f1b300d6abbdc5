//! Operations on the content of regular files.

mod access_time;
mod atomic;
mod attempt;
mod content;
#[cfg(test)]
mod data_mode_tests;
mod fallocate;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_tests;
mod plan;
mod read;
mod seek;
mod sync;
#[cfg(test)]
mod tests;
mod truncate;
mod untorn;
mod write;

pub use atomic::Piece;
pub(crate) use content::{FILE_BYTES_MAX, regular_file};
pub use fallocate::Allocate;
pub(crate) use plan::flagged_mode;
