//! The parts of the engine that handles, writes in place and commits have in common.

use std::sync::Arc;

use device::BlockDevice;
use device::sync::Mutex;

use super::data_checks::DataChecks;
use super::running::Running;
use crate::context::Context;
use crate::home::{Blocks, Checkpointer, Home};
use crate::medium::{Medium, Space};
use crate::options::Options;
use crate::ring::{Header, Limits, Ring};

/// Parts of an open journal.
pub(crate) struct Parts {
    pub context: Arc<Context>,
    pub limits: Limits,
    pub home: Arc<Home>,
    pub blocks: Arc<Blocks>,
    pub ring: Arc<Ring>,
    pub checkpointer: Checkpointer,
    pub checks: Arc<DataChecks>,
    pub running: Mutex<Running>,
}

impl Parts {
    /// `header` begins the incarnation, and is durable in both slots of `space`.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        space: Space,
        options: Options,
        header: Header,
    ) -> Parts {
        let (limits, memory) = (Limits::new(&header, &options.memory), options.memory);
        let (flushes, shares_disk) = (space.flushes_of(&device), space.shares_disk_with(&device));
        let context = Arc::new(Context::new(options));
        let is_one_device =
            matches!(space.medium(), Medium::Block(journal) if Arc::ptr_eq(journal, &device));
        let checks = Arc::new(DataChecks::new(context.clone(), is_one_device, header.tail_tid));
        let home = Arc::new(Home::new(context.clone(), device, flushes));
        let blocks = Arc::new(Blocks::new(home.clone(), memory.clean_blocks));
        let ring = Arc::new(Ring::new(context.clone(), space, header));
        let checkpointer = Checkpointer::new(
            context.clone(),
            blocks.clone(),
            home.clone(),
            ring.clone(),
            shares_disk,
        );
        let running = Mutex::new(Running::new(header.tail_tid));
        Parts { context, limits, home, blocks, ring, checkpointer, checks, running }
    }
}
