//! The engine from outside: commits, recovery, checkpoints, failures.

#![allow(missing_docs)]

mod abort;
mod checkpoint;
mod codec;
mod commit;
mod common;
mod crash_model;
mod data_checks;
mod flushes;
mod format_page;
mod in_place;
mod memory;
mod observer;
mod other_media;
mod pace;
mod panics;
mod recovery;
mod revokes;
mod threads;
