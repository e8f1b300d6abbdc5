//! What every part of the engine uses: options, counters, the abort latch. No lock protects them.

use crate::abort::AbortLatch;
use crate::observer::{BlockOwner, Written, WrittenAs};
use crate::options::Options;
use crate::stats::Counters;

pub(crate) struct Context {
    pub options: Options,
    pub counters: Counters,
    pub abort: AbortLatch,
}

impl Context {
    pub(crate) fn new(options: Options) -> Context {
        Context { options, counters: Counters::default(), abort: AbortLatch::default() }
    }

    /// Reports to the observer what was written for which owner.
    pub(crate) fn observe(&self, all: impl Iterator<Item = (BlockOwner, WrittenAs, u64)>) {
        let Some(observer) = &self.options.observer else { return };
        let owned = all.filter(|(owner, ..)| *owner != BlockOwner::NOBODY);
        let written: Vec<Written> =
            owned.map(|(owner, how, len_bytes)| Written { owner, how, len_bytes }).collect();
        if !written.is_empty() {
            observer.written(&written);
        }
    }
}
