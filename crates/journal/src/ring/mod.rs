//! The ring of regions, in memory and in the headers on the medium.

mod header;
mod limits;
mod live;
mod regions;
mod shared;

pub use header::Header;
pub(crate) use header::{FoundHeader, REGION_COUNT_MAX, incarnation_after_recovery};
pub(crate) use limits::{Limits, divide_into_regions};
pub(crate) use regions::{RecordSpan, Regions, Room};
pub(crate) use shared::Ring;
