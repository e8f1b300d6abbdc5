//! What processes share in memory: the words of the service ([`Control`]) and of each lane ([`LaneWords`]).
//!
//! This module owns the protocol. Its methods are named after what a process does (claim, publish, mark, free), each
//! memory ordering is in `memory`, and no other module sees an atomic.
//!
//! # Words of the service, changed by the processes that serve the directory
//!
//! | word | meaning | changed by |
//! |---|---|---|
//! | leader | who writes the group log | compare-and-swap from nobody or from a dead process |
//! | group place | where the next entry of the group log goes | the leader |
//! | pending | a bit for each stream that waits for a group commit | set by waiters, taken by the leader |
//! | arrivals, wanted, taken, expected | how many wait, and are waited for (`gather`) | waiters; the leader |
//! | chunk owners | stream + 1, or 0; with a mark while the chunk is being freed | compare-and-swap from 0 by the lender; to the mark, then 0, by the drainer |
//! | chunk holders | whose mappings may show the chunk's file | who has just lent it |
//! | epoch, freed | changes that waiters sleep on | the leader; the drainer |
//!
//! # Words of a lane, also written by its writer, which need not be trusted
//!
//! `drained <= synced <= appended`, all ends of records. Below `drained` the log files hold the stream durably. Below
//! `synced` it is durable (on NVRAM: below `appended`). Below `appended` it is in the chunks.
//!
//! | word | changed by |
//! |---|---|
//! | lessee | compare-and-swap from nobody or from a dead process |
//! | appended | the lessee, through [`Appender`] |
//! | synced | the leader, or the drainer |
//! | drainer | compare-and-swap from nobody or from a dead process |
//! | drained | the drainer, through [`DrainerClaim`] |
//! | chunk table | entries are added for the lessee, and cleared by the drainer |
//!
//! # Which pairs of accesses carry data
//!
//! 1. The lessee stores records, then publishes `appended`. A leader or drainer reads `appended`, then the records.
//! 2. A holder releases a claim. The next one claims it and sees all that the former did.
//! 3. The drainer marks `drained`, then frees the chunk. A lender takes the chunk, then stores other records in it. A
//!    reader that saw these bytes sees `drained` beyond them, and reads the log file instead.
//! 4. A waiter sets `wanted` and its pending bit. The leader that takes the bit sees `wanted`.
//! 5. A waiter and a waker agree on one of them seeing the other (`memory`).
//!
//! `model_test` runs each of them under a weak memory model, also with a holder that dies at any step.
//!
//! # Lost words
//!
//! A process that may write the files of the words may also make them shorter. The words are zeros of this process
//! then, and `check` is an error.
//!
//! A client of the daemon never sees these words. It has a copy of its own (`remote`), from which the process that
//! serves the directory takes over `appended`, if that is plausible.

pub(crate) mod client_copy;
mod control;
mod lane;
mod memory;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_test;

pub(crate) use control::{ChunkState, Control, GroupPlace};
pub(crate) use lane::{Abort, Appender, DrainerClaim, LaneWords, Totals};
pub(crate) use memory::{after_reads, before_writes};

use crate::StreamId;
use memory::Memory;

/// A process that takes part in a service: a slot and how often it has been taken. 0 is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(crate) u64);

impl Client {
    pub(crate) const NOBODY: Client = Client(0);

    pub(crate) fn new(slot: usize, generation: u64) -> Client {
        Client(generation << 16 | (slot as u64 + 1))
    }

    /// The same client, holding a lease only while it frees the chunks of an idle lane.
    pub(crate) fn for_a_moment(self) -> Client {
        Client(self.0 | 1 << 63)
    }

    /// Whether it will release the lease without being asked.
    pub(crate) fn is_for_a_moment(self) -> bool {
        self.0 >> 63 != 0
    }

    /// Without that mark.
    pub(crate) fn plain(self) -> Client {
        Client(self.0 & !(1 << 63))
    }

    pub(crate) fn slot(self) -> Option<usize> {
        let slot = usize::try_from(self.0 & 0xffff).expect("16 bits");
        slot.checked_sub(1)
    }
}

/// Most clients of one service at a time.
pub const CLIENT_COUNT_MAX: usize = 256;
/// Most streams of one service at a time.
pub const STREAM_COUNT_MAX: usize = 1 << 16;
/// Most chunks of one pool.
pub const CHUNK_COUNT_MAX: usize = 992;

/// Spans have smaller numbers: so many fit into a lane's table.
pub(crate) const ORDINAL_MAX: u64 = 1 << 48;

/// Bytes of the note that a lessee leaves for the next one.
pub const NOTE_BYTES: usize = 64;

impl StreamId {
    /// The value of the owner's word of its chunks.
    fn owner(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// Its place among the streams that exist, which no other of them has.
    pub(crate) fn place(self) -> usize {
        self.0 as usize % STREAM_COUNT_MAX
    }
}

/// Takes the word at `index` for `client` if no client has it, or if `is_dead` says that its holder is dead. Returns
/// the holder before.
fn claim(
    memory: &Memory,
    index: usize,
    client: Client,
    is_dead: impl Fn(Client) -> bool,
) -> Option<Client> {
    let mut held = memory.get(index);
    loop {
        if held != 0 && !is_dead(Client(held)) {
            return None;
        }
        match memory.exchange(index, held, client.0) {
            Ok(_) => return Some(Client(held)),
            Err(other) => held = other,
        }
    }
}
