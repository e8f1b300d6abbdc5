//! Recovery after a restart of the machine, and the way home from a stream that a database leaves.

pub mod home;
pub mod recover;
pub mod roll_forward;
