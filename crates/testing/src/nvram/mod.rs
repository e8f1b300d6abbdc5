//! A simulated NVRAM.

mod cache;
mod cursor;
mod event;
mod sim_nvram;

pub use cache::{NvramCursor, NvramTrace};
pub use event::NvramEvent;
pub use sim_nvram::SimNvram;

#[cfg(test)]
mod tests;
