//! The volume's blocks: the newest versions in memory, the home device, and checkpoints.

mod blocks;
mod cache;
mod checkpoint;
mod home_device;
mod pace;

pub(crate) use blocks::Blocks;
pub(crate) use checkpoint::Checkpointer;
pub(crate) use home_device::{Home, WRITER_COUNT_MAX, runs_of, write_blocks};
