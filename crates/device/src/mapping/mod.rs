//! Mapped memory, and words in it that processes share.

pub(crate) mod bus;
pub(crate) mod fork_mark;
pub(crate) mod memory;
pub(crate) mod words;
