//! One operation: a journal handle and what the operation changes.

pub(crate) mod credits;
mod operation;
mod orphan;
mod undone;

pub(crate) use operation::{Op, Spending};
pub(crate) use undone::Undone;
