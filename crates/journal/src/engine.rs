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
//! Each part uses those below it and none above. [`Context`] (options, counters, the abort latch)
//! is used by all. [`DataChecks`] has no part below it; `Handle`, `Committer` and `InPlace` use it.
//!
//! Locks, in the order in which they are taken. A thread never waits for an earlier one while it
//! holds a later one:
//!
//! | lock | protects | held during |
//! |---|---|---|
//! | `turn` (`Engine`) | nothing; its holder found no room twice, others let it go first | waits for commits |
//! | `running` (`Engine`, the handle lock) | the running transaction | reads of cold blocks |
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
use crate::commit::{self, Committer};
use crate::context::Context;
use crate::error::{JournalError, Result};
use crate::home::{Blocks, Checkpointer, Home};
use crate::medium::{Medium, Space};
use crate::options::Options;
use crate::ring::{Header, Limits, Ring};
use crate::transaction::{DataChecks, Handle, InPlace, Running, handle};
use crate::types::Tid;

/// The parts of an open journal.
pub(crate) struct Engine {
    context: Arc<Context>,
    limits: Limits,
    blocks: Arc<Blocks>,
    ring: Arc<Ring>,
    checkpointer: Arc<Checkpointer>,
    in_place: Arc<InPlace>,
    checks: Arc<DataChecks>,
    committer: Arc<Committer>,
    running: Arc<Mutex<Running>>,
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
        let (limits, memory) = (Limits::new(&header, &options.memory), options.memory);
        let may_pack = options.pack && options.delta_codec.may_pack();
        let packs = may_pack && matches!(space.medium(), Medium::Block(_));
        let flushes = space.flushes_of(&device);
        let context = Arc::new(Context::new(options));
        let is_one_device =
            matches!(space.medium(), Medium::Block(journal) if Arc::ptr_eq(journal, &device));
        let checks = Arc::new(DataChecks::new(context.clone(), is_one_device, header.tail_tid));
        let home = Arc::new(Home::new(context.clone(), device, flushes));
        let blocks = Arc::new(Blocks::new(home.clone(), memory.clean_blocks));
        let ring = Arc::new(Ring::new(context.clone(), space, header));
        let running = Arc::new(Mutex::new(Running::new(header.tail_tid)));
        let checkpointer = Arc::new(Checkpointer::new(
            context.clone(),
            blocks.clone(),
            home.clone(),
            ring.clone(),
        ));
        let in_place = Arc::new(InPlace::new(
            context.clone(),
            blocks.clone(),
            home.clone(),
            ring.clone(),
            checkpointer.clone(),
            running.clone(),
            checks.clone(),
        ));
        let parts = commit::Parts {
            context: context.clone(),
            home,
            ring: ring.clone(),
            checkpointer: checkpointer.clone(),
            in_place: in_place.clone(),
            checks: checks.clone(),
            running: running.clone(),
        };
        let committer = Arc::new(Committer::new(parts, limits, &header, packs));
        let sleepers: [Arc<dyn Wake>; 3] = [committer.clone(), ring.clone(), checks.clone()];
        context.abort.set_sleepers(sleepers.iter().map(Arc::downgrade).collect());
        Engine {
            context,
            limits,
            blocks,
            ring,
            checkpointer,
            in_place,
            checks,
            committer,
            running,
            turn: Mutex::new(()),
        }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(crate) fn checkpointer(&self) -> &Checkpointer {
        &self.checkpointer
    }

    pub(crate) fn in_place(&self) -> &InPlace {
        &self.in_place
    }

    pub(crate) fn committer(&self) -> &Committer {
        &self.committer
    }

    /// The running transaction.
    pub(crate) fn running(&self) -> &Mutex<Running> {
        &self.running
    }

    /// The transaction that a handle opened now would join.
    pub(crate) fn running_tid(&self) -> Tid {
        self.running.lock().tid
    }

    /// Opens a handle if the running transaction has room for `credit_count` blocks. Otherwise
    /// waits for a commit.
    pub(crate) fn begin(&self, credit_count: usize) -> Result<Handle<'_>> {
        let block_limit = self.limits.transaction_blocks();
        if credit_count > block_limit {
            return Err(JournalError::TooSmall(format!(
                "an operation needs {credit_count} blocks, a transaction holds {block_limit}"
            )));
        }
        let (mut is_again, mut turn) = (false, None);
        loop {
            self.context.abort.check()?;
            if turn.is_none() && self.turn.try_lock().is_none() {
                drop(self.turn.lock());
            }
            let running = self.running.lock();
            let block_count = running.block_count() + credit_count;
            if block_count <= block_limit
                && self.limits.record_fits(block_count, running.revokes.len())
            {
                let parts = handle::Parts {
                    context: &self.context,
                    blocks: &self.blocks,
                    ring: &self.ring,
                    checks: &self.checks,
                    limits: &self.limits,
                };
                return Ok(Handle::new(parts, running, credit_count));
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
