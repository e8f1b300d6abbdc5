//! Databases on a OneJournal volume, which need no log.

pub mod file;
pub mod frames;
pub mod journal;
pub mod memory;
mod pages;
pub mod rollback;
mod target;
