//! What processes share in memory: the words of the service ([`Control`]) and of each lane
//! ([`LaneWords`]).
//!
//! This module owns the protocol. Its methods are named after what a process does (claim, publish,
//! mark, free), each memory ordering is in `memory`, and no other module sees an atomic.
//!
//! # Words of the service, changed by the processes that serve the directory
//!
//! | word | meaning | changed by |
//! |---|---|---|
//! | leader | who writes the group log | compare-and-swap from zero or from a dead process |
//! | leads, stalled lead | how often a process led, and which time it was stopped | leaders; waiters |
//! | group position | where the next entry of the group log goes | the leader |
//! | pending | a bit for each stream that waits for a group commit | set by waiters, taken by the leader |
//! | arrivals, wanted, taken, expected | how many wait, and are waited for (`gather`) | waiters; the leader |
//! | chunk owners | stream + 1, or 0; with a mark while the chunk is being freed | compare-and-swap from 0 by the allocator; to the mark, then 0, by the drainer |
//! | chunk holders | whose mappings may show the chunk's file | the process that has just allocated it |
//! | highest USN | the largest one of a record that was drained | raised by the drainer |
//! | epoch, freed | changes that waiters sleep on | the leader; the drainer |
//! | file marks | a bit for each lane and each chunk whose file was made | set by the process that made it; cleared before it is removed |
//!
//! # Words of a lane, also written by its writer, which need not be trusted
//!
//! `drained <= synced <= appended`, all ends of records. Below `drained` the log files hold the
//! stream durably. Below `synced` it is durable (on NVRAM: below `appended`). Below `appended` it
//! is in the chunks.
//!
//! | word | changed by |
//! |---|---|
//! | lessee | compare-and-swap from zero or from a dead process |
//! | appended | the lessee, through [`Appender`] |
//! | synced | the leader, the drainer, or a process with the service's lock (`engine::aside`) |
//! | drainer | compare-and-swap from zero or from a dead process |
//! | drained | the drainer, through [`DrainerClaim`] |
//! | chunk table | entries are added for the lessee, and cleared by the drainer |
//! | aside bytes, aside end | a process with the service's lock |
//!
//! # Which pairs of accesses carry data
//!
//! 1. The lessee stores records, then publishes `appended`. A leader or drainer reads `appended`,
//!    then the records.
//! 2. A holder releases a claim. The next one claims it and sees all that the former did.
//! 3. The drainer marks `drained`, then frees the chunk. A process that allocates takes the chunk,
//!    then stores other records in it. A reader that saw these bytes sees `drained` beyond them,
//!    and reads the log file instead.
//! 4. A waiter sets `wanted` and its pending bit. The leader that takes the bit sees `wanted`.
//! 5. A waiter and a waker agree on one of them seeing the other (`memory`).
//!
//! `model_test` runs each of them under a weak memory model, also with a holder that dies at any
//! step.
//!
//! # Lost words
//!
//! A process that may write the files of the words may also make them shorter. The words are zeros
//! of this process then, and `check` is an error.
//!
//! A client of the daemon never sees these words. It has a copy of its own (`client_copy`). The
//! process that serves the directory takes over `appended` from the copy if that can be true
//! (`report`). `hostile_test` checks with arbitrary words that nothing else gets through.

mod client;
pub(crate) mod client_copy;
mod control;
#[cfg(test)]
mod hostile_test;
mod lane;
mod limits;
mod memory;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_test;
mod report;

pub(crate) use client::Client;
pub(crate) use control::{ChunkState, Control, FileMark, GroupPosition};
pub(crate) use lane::{Abort, Appender, DrainerClaim, LaneWords, after_reads, before_writes};
pub(crate) use limits::ORDINAL_MAX;
pub(crate) use report::{Implausible, Report};

pub use limits::{CHUNK_COUNT_MAX, CLIENT_COUNT_MAX, STREAM_COUNT_MAX, STREAM_HEADER_BYTES};
