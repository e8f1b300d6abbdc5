//! Records mounted volumes, databases and logs on disks, cuts the power at any event, recovers, and
//! judges the result from outside.
//!
//! ```text
//! scenario, seed -> run: actors -> system calls -> onejournal mount -> loop device -> disk
//!                          | marks                                    writes, flushes |
//!                          +---------------------> one trace <------------------------+
//!                                                      |
//!            history <- marks, model             crash images at any event
//!                |                                     |
//!                |                                  recovery: in this process, fsck, mount
//!                |                                     |
//!                +---> judge <- found <- the kernel's ext4
//! ```
//!
//! If the journal is on NVRAM, the daemon's code serves the mount in this process. Its disk and its
//! NVRAM are in memory, and record each write, flush, store and fence in the same trace (`served`,
//! `memory`).
//!
//! Programs that use the log service run on the kernel's ext4, in processes of their own
//! (`worker`). There the machine looks as if it had just been started (`space`, `host`). Database
//! engines run on a volume, or for canaries on the kernel's ext4 (`engine`).
//!
//! The workload uses a mounted directory by system calls only. The model is that of crate `sim`,
//! which knows names and bytes. A recovered volume is checked by e2fsck and read through the
//! kernel's ext4. The ext4 crate is used for one purpose: to recover most of the images in this
//! process, which is faster than a command.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   databases                  crash images of database engines
//!   campaign                   many images of recorded runs
//!   save                       runs that failed, as files
//!   run stand                  a recorded run; where its images are recovered and checked
//!   hands host worker found    acts, the kernel's ext4 with programs on it, what is on a volume
//!   history script replaced    what a crash may leave; the steps of each actor
//!   database obstacle paths store
//!   scenario                   what a kind of run is
//!   case engine                the name of an image; database engines
//!   crash rig served space     images from a trace; disks and mounts; namespaces
//!   open_fuse
//!   command contents mark memory ram slots streams
//! ```

#![allow(missing_docs, reason = "fields are named after what they are")]

pub mod campaign;
pub mod case;
mod command;
mod contents;
pub mod crash;
mod database;
pub mod databases;
pub mod engine;
mod found;
mod hands;
pub mod history;
pub mod host;
mod mark;
mod memory;
pub mod obstacle;
pub mod open_fuse;
mod paths;
mod ram;
mod replaced;
mod rig;
mod run;
mod save;
pub mod scenario;
mod script;
mod served;
mod slots;
mod space;
mod stand;
mod store;
mod streams;
pub mod worker;
