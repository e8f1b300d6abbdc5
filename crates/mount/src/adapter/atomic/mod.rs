//! Atomic writes of open files.

mod overlay;
mod shares;
pub(super) mod writes;
