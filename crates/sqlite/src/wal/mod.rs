//! WAL mode: what the writes and syncs of a WAL are to the log.

pub mod commit;
pub mod durable;
pub mod file;
pub mod generation;
pub mod leave;
#[cfg(test)]
mod tests;
