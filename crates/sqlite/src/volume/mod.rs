//! Databases on a OneJournal volume, which need no log.

pub mod file;
pub mod frames;
pub mod journal;
