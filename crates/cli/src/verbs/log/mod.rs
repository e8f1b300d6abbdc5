//! `onejournal log`, and the metrics of a log.

mod command;
pub mod metrics;

pub use command::{LogArgs, failed, has_open, parse_mode, run};
