//! The extension in SQLite: databases, power cuts, processes, users, Python.
//!
//! What the extension and the recording VFS keep belongs to the process, so each test has one of
//! its own.

#![allow(missing_docs)]

mod anew;
mod attributes;
mod background;
mod batch;
mod checkpoints;
mod common;
mod daemon;
mod database;
mod descriptors;
mod example;
mod fork;
mod grounds;
mod identity;
mod killed;
mod last_close;
mod messages;
mod no_descriptors;
mod owners;
mod power_cut;
mod processes;
mod python;
mod refusal;
mod refused_record;
mod removed_memory;
mod requests;
mod shared_cache;
mod shared_memory;
mod stacked;
mod unread_uri;
mod users;
mod wal_cuts;
mod wal_reset;
