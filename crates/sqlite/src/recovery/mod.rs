//! Recovery after a restart of the machine.

pub mod recover;
pub mod roll_forward;
