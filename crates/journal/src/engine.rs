//! The engine: its parts, put together, and the opening of handles.
//!
//! ```text
//!                 Engine
//!                   |
//!      Handle   Committer                 one commit at a time
//!        |     /   |    \
//!        |    | InPlace  |                data that does not pass through the journal
//!        |    |    |     |
//!        |    | Checkpointer              one checkpoint at a time
//!        |    |  /    \  |
//!      Blocks Home     Ring               cache, home device, regions on their medium
//!                        |
//!                     Regions             facts, without a lock or I/O
//! ```
//!
//! Each part uses those below it and none above. `Context` (options, counters, the abort latch) is
//! used by all. `DataChecks` has no part below it; `Handle`, `Committer` and `InPlace` use it.
//! [`Parts`] has what these three share.
//!
//! Locks, in the order in which they are taken. A thread never waits for an earlier one while it
//! holds a later one:
//!
//! | lock | protects | held during |
//! |---|---|---|
//! | `turn` (`Engine`) | nothing; its holder found no room twice, others let it go first | waits for commits |
//! | `running` (`Parts`, the handle lock) | the running transaction | reads of cold blocks |
//! | `UnderWay` (`InPlace`) | the order of announced writes in place | - |
//! | `InPlaceCount` (of a transaction) | the writes in place that its commit waits for | - |
//! | `state` (`DataChecks`) | which transactions have checked data | - |
//! | `memory` (`Committer`) | the buffer of the commit in flight, and the blocks that the active region holds, for copies; never contended | phases 3 to 5 |
//! | `header_writing` (`Ring`) | the order of headers | writes of a header |
//! | `flushes` (`Home` and `Space`) | the order of flushes of one cache | flushes, and durable writes that may flush |
//! | `progress` (`Committer`) | commit in flight, what is committed, who waits | - |
//! | `progress` (`Checkpointer`) | checkpoint that is running, blocks on their way home | - |
//! | `regions` (`Ring`) | regions, records, the header | - |
//! | a shard of the cache; distributions | its entries | - |
//!
//! The two `progress` locks are never held together. Each is held together with `regions` in one
//! case, in which two facts must agree; `committer.rs` and `checkpoint.rs` say which.

use std::sync::Arc;

use device::BlockDevice;
use device::sync::Mutex;

use crate::abort::Wake;
use crate::commit::Committer;
use crate::error::{JournalError, Result};
use crate::medium::{Medium, Space};
use crate::options::Options;
use crate::ring::Header;
use crate::transaction::{Handle, InPlace, Parts};
use crate::types::Tid;

/// An open journal, put together.
pub(crate) struct Engine {
    pub parts: Arc<Parts>,
    pub in_place: Arc<InPlace>,
    pub committer: Arc<Committer>,
    /// Held by an operation that found no room twice, until it finds room. Other operations wait
    /// for it.
    turn: Mutex<()>,
}

impl Engine {
    /// `header` begins the incarnation, and is durable in both slots of `space`.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        space: Space,
        options: Options,
        header: Header,
    ) -> Engine {
        let may_pack = options.pack && options.delta_codec.may_pack();
        let packs = may_pack && matches!(space.medium(), Medium::Block(_));
        let parts = Arc::new(Parts::new(device, space, options, header));
        let in_place = Arc::new(InPlace::new(parts.clone()));
        let committer = Committer::new(parts.clone(), in_place.clone(), &header, packs);
        let committer = Arc::new(committer);
        let sleepers: [Arc<dyn Wake>; 3] =
            [committer.clone(), parts.ring.clone(), parts.checks.clone()];
        parts.context.abort.set_sleepers(sleepers.iter().map(Arc::downgrade).collect());
        Engine { parts, in_place, committer, turn: Mutex::new(()) }
    }

    /// The transaction that a handle opened now would join.
    pub(crate) fn running_tid(&self) -> Tid {
        self.parts.running.lock().tid
    }

    /// Opens a handle if the running transaction has room for `credit_count` blocks. Otherwise
    /// waits for a commit.
    pub(crate) fn begin(&self, credit_count: usize) -> Result<Handle<'_>> {
        let block_limit = self.parts.limits.transaction_blocks;
        if credit_count > block_limit {
            return Err(JournalError::TooSmall(format!(
                "an operation needs {credit_count} blocks, a transaction holds {block_limit}"
            )));
        }
        let (mut is_again, mut turn) = (false, None);
        loop {
            self.parts.context.abort.check()?;
            if turn.is_none() && self.turn.try_lock().is_none() {
                drop(self.turn.lock());
            }
            let running = self.parts.running.lock();
            let block_count = running.block_count() + credit_count;
            if block_count <= block_limit
                && self.parts.limits.record_fits(block_count, running.revokes.len())
            {
                return Ok(Handle::new(&self.parts, running, credit_count));
            }
            let full = running.tid;
            drop(running);
            // Without the turn, small handles could starve a large one.
            if is_again && turn.is_none() {
                turn = Some(self.turn.lock());
            }
            self.committer.sync(full)?;
            is_again = true;
        }
    }
}
