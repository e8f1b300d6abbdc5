//! Non-volatile memory: the interface, mapped memory, and wrappers of both.

mod cut;
mod interface;
mod latency;
mod line;
mod mapped;
mod medium;
mod metered;
mod persist;
mod processor;

pub use interface::Nvram;
pub use latency::AddedLatency;
pub use line::{LINE_BYTES, line_count};
pub use mapped::MappedNvram;
pub use metered::{MeteredNvram, NvramCounters};
