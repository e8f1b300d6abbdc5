//! The parts that all simulated media share: images, traces of events, and power cuts.

mod cache;
mod clock;
mod event;
mod faults;
mod image;
mod medium;
mod pending;
mod piece;
mod survival;
mod trace;
mod traces;
mod unit;

pub use clock::SimClock;
pub use event::Event;
pub use faults::Fault;
pub(crate) use faults::Faults;
pub use image::Image;
pub use medium::SimMedium;
pub use pending::Pending;
pub use piece::Piece;
pub use survival::Survival;
pub(crate) use trace::mix;
pub use trace::{Cursor, Trace};
pub use traces::{Cursors, Traces};
pub use unit::Unit;

#[cfg(test)]
mod sector_tests;
#[cfg(test)]
mod trace_tests;
#[cfg(test)]
mod word_tests;
