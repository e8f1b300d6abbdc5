//! WAL mode: what the writes and syncs of a WAL are to the log.

pub mod file;
