//! One operation: a journal handle and what the operation changes.

pub(crate) mod credits;
mod operation;
mod orphan;

pub(crate) use operation::{Op, Spending, Undo};
