//! Atomic writes of open files.

mod overlay;
pub(super) mod writes;
