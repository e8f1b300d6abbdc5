//! One durable write for all callers that wait.

mod committer;
mod distribution;
mod gathering;

pub(crate) use committer::{Committer, Parts};
pub use distribution::Distribution;
