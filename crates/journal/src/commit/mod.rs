//! One durable write for all callers that wait.

mod committer;
mod distribution;
mod gathering;

pub(crate) use committer::Committer;
pub use committer::{Synced, WhenDurable};
pub use distribution::Distribution;
