//! What is stored, byte for byte, and how it is read back. `docs/format/log.md` has the tables.

pub(crate) mod chunk;
#[cfg(test)]
mod format_page;
pub(crate) mod group;
pub(crate) mod quarantine;
pub(crate) mod record;
pub(crate) mod scan;
pub(crate) mod segments;
