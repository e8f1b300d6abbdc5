//! A simulated file system.

mod sim_files;
mod trace;

pub use sim_files::{SimDirectory, SimFiles};
pub use trace::{FilesCursor, FilesImage, FilesTrace};
