//! The volume's blocks: the newest versions in memory, the home device, and checkpoints.

mod blocks;
mod cache;
mod checkpoint;
mod home_device;

pub(crate) use blocks::Blocks;
pub(crate) use checkpoint::Checkpointer;
pub(crate) use home_device::{Home, runs_of, write_blocks};
