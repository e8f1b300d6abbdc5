//! A simulated NVRAM.

mod sim_nvram;

pub use sim_nvram::SimNvram;

#[cfg(test)]
mod tests;
