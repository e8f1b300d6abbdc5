//! What a transaction changes before it commits, in the journal or in place.

mod data_checks;
pub(crate) mod handle;
mod in_place;
mod running;
mod under_way;

pub(crate) use data_checks::DataChecks;
pub use handle::Handle;
pub(crate) use in_place::{InPlace, WriteOut};
pub use running::InPlaceGuard;
pub(crate) use running::{InPlaceCount, InPlaceEnd, Running};
pub(crate) use under_way::Source;
