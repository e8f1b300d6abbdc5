//! The parts that all simulated media share: images, traces of events, and power cuts.

mod clock;
mod faults;
mod image;
mod piece;
mod survival;
mod trace;

pub use clock::SimClock;
pub use faults::Fault;
pub(crate) use faults::Faults;
pub use image::Image;
pub(crate) use piece::{Piece, flip_bit, write_pieces};
pub use survival::Survival;
pub(crate) use trace::mix;
pub use trace::{CursorOf, TraceOf, Volatile};
