//! The running transaction: changes of handles, and data that go home in place.

mod data_checks;
mod handle;
mod in_place;
mod parts;
mod running;
mod under_way;

pub use handle::Handle;
pub(crate) use in_place::{InPlace, WriteOut};
pub(crate) use parts::Parts;
pub use running::InPlaceGuard;
pub(crate) use running::{InPlaceCount, InPlaceEnd, Running};
pub(crate) use under_way::Source;
