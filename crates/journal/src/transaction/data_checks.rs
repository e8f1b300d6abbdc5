//! Checks: checksums of data in place, in the record that commits the data.
//!
//! A transaction may be *checked*: its record holds a checksum of all data that it wrote in place.
//! Then no flush comes between the data and the record. Both are written, and one flush makes both
//! durable. After a power cut, recovery compares the data with the checks of the newest record. If
//! they differ, the record is not taken: its flush had not ended, so it was not acknowledged. An
//! older record needs no comparison, because the next record was written after its flush.
//!
//! So nothing may change checked data in place as long as their record may be the newest one. The
//! rules:
//!
//! 1. Only data in blocks that no file had before are checked: data that a caller writes directly,
//!    and long runs of fresh blocks that the commit takes out of what it logs. A transaction with
//!    other data in place, with more than [`BLOCKS_MAX`] blocks or [`CHECKS_MAX`] checks, or with a
//!    checked block that was written twice or that it also logs, is flushed before its record, as a
//!    whole.
//! 2. A write in place over checked blocks of a transaction that is not committed makes that
//!    transaction one of the kind that is flushed before its record ([`DataChecks::clear_way`]).
//!    If its record is already being written, the write waits for the commit.
//! 3. A write in place over checked blocks of the newest record first *settles* that record: a
//!    durable header says that its data need no comparison (`Ring::settle`).
//! 4. A checkpoint writes checked blocks only in versions of later transactions, because of rule 1
//!    and because versions from before are revoked. The later record is durable then.
//!
//! This needs data and journal on the same device, so that a flush covers them together.
//!
//! Lock: `state`, a leaf: no other lock is taken while it is held.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use device::sync::{Condvar, Mutex};

use super::under_way::have_common;
use crate::abort::Wake;
use crate::context::Context;
use crate::error::Result;
use crate::faults::{self, Fault};
use crate::record::{BLOCKS_MAX, CHECKS_MAX, DataCheck};
use crate::types::{HomeBlock, Tid};

/// Which transactions have checked data.
pub(crate) struct DataChecks {
    context: Arc<Context>,
    /// Whether data and journal are on one device. If not, `state` is neither used nor locked.
    pub is_possible: bool,
    state: Mutex<State>,
    /// Signalled when a record with checks is durable, and by an abort.
    changed: Condvar,
}

struct State {
    running: Collected,
    /// The transaction that is being committed, until its checks are complete.
    closed: Option<Collected>,
    /// The transaction whose record is being written.
    writing: Option<Checked>,
    /// The transaction of the newest durable record, unless it is settled.
    newest: Option<Checked>,
}

/// Data in place of a transaction that is not written yet.
struct Collected {
    tid: Tid,
    /// `None`: the transaction is flushed before its record.
    checks: Option<Vec<DataCheck>>,
}

/// A transaction with checks in its record.
struct Checked {
    tid: Tid,
    blocks: Vec<Range<u64>>,
}

impl Collected {
    fn new(tid: Tid) -> Collected {
        Collected { tid, checks: Some(Vec::new()) }
    }

    fn has_any_of(&self, range: &Range<u64>) -> bool {
        self.checks.iter().flatten().any(|check| have_common(&check.blocks(), range))
    }

    /// Whether it is checked, and may have one more check, of so many blocks.
    fn has_room_for(&self, block_count: u64) -> bool {
        self.checks.as_ref().is_some_and(|checks| {
            let checked_count: u64 = checks.iter().map(|check| u64::from(check.block_count)).sum();
            checks.len() < CHECKS_MAX && checked_count + block_count <= BLOCKS_MAX
        })
    }
}

impl Checked {
    fn has_any_of(&self, range: &Range<u64>) -> bool {
        self.blocks.iter().any(|blocks| have_common(blocks, range))
    }
}

impl State {
    /// The transaction, which is not written yet.
    fn collected(&mut self, tid: Tid) -> &mut Collected {
        let closed = self.closed.as_mut().filter(|closed| closed.tid == tid);
        let found = closed.unwrap_or(&mut self.running);
        assert!(found.tid == tid, "data are written in place before their transaction commits");
        found
    }
}

/// Whether a write in place may begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Clear,
    /// After this transaction, whose record is the newest, is settled.
    AfterSettling(Tid),
}

impl DataChecks {
    /// `first`: the first transaction of the incarnation.
    pub(crate) fn new(context: Arc<Context>, is_possible: bool, first: Tid) -> DataChecks {
        let running = Collected::new(first);
        let state = State { running, closed: None, writing: None, newest: None };
        DataChecks { context, is_possible, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Whether `block_count` more blocks of the transaction may be checked. If not, the transaction
    /// is flushed before its record. Other threads may add theirs first, so [`DataChecks::add`]
    /// looks again.
    pub(crate) fn may_add(&self, tid: Tid, block_count: u64) -> bool {
        if !self.is_possible {
            return false;
        }
        let mut state = self.state.lock();
        let collected = state.collected(tid);
        let fits = collected.has_room_for(block_count);
        if !fits {
            collected.checks = None;
        }
        fits
    }

    /// Data that are about to be written in place.
    pub(crate) fn add(&self, tid: Tid, check: DataCheck) {
        assert!(self.is_possible, "a check is added after `may_add`");
        let mut state = self.state.lock();
        let collected = state.collected(tid);
        let is_written_twice = collected.has_any_of(&check.blocks());
        let fits = collected.has_room_for(u64::from(check.block_count));
        match &mut collected.checks {
            Some(checks) if fits && !is_written_twice => checks.push(check),
            _ => collected.checks = None,
        }
    }

    /// Sets the checksum of a check that was added before its checksum was known.
    pub(crate) fn complete(&self, tid: Tid, home: HomeBlock, checksum: u32) {
        let mut state = self.state.lock();
        let mut checks = state.collected(tid).checks.iter_mut().flatten();
        if let Some(check) = checks.find(|check| check.home == home) {
            check.checksum = checksum;
        }
    }

    /// The transaction has data in place without a check.
    pub(crate) fn add_unchecked(&self, tid: Tid) {
        if self.is_possible {
            self.state.lock().collected(tid).checks = None;
        }
    }

    /// Called before a write in place of these blocks: rules 2 and 3. `checked`: the transaction
    /// that these data were added to.
    pub(crate) fn clear_way(&self, blocks: &Range<u64>, checked: Option<Tid>) -> Result<Way> {
        if !self.is_possible || faults::is(Fault::CheckedDataOverwritten) {
            return Ok(Way::Clear);
        }
        let mut state = self.state.lock();
        let State { running, closed, .. } = &mut *state;
        for collected in [Some(running), closed.as_mut()].into_iter().flatten() {
            if Some(collected.tid) != checked && collected.has_any_of(blocks) {
                collected.checks = None;
            }
        }
        while state.writing.as_ref().is_some_and(|writing| writing.has_any_of(blocks)) {
            self.context.abort.check()?;
            state = self.changed.wait(state);
        }
        let newest = state.newest.as_ref().filter(|newest| newest.has_any_of(blocks));
        Ok(newest.map_or(Way::Clear, |newest| Way::AfterSettling(newest.tid)))
    }

    /// A durable header says that the transaction is settled.
    pub(crate) fn note_settled(&self, tid: Tid) {
        let mut state = self.state.lock();
        state.newest.take_if(|newest| newest.tid == tid);
    }

    /// The running transaction is closed. The caller holds the handle lock.
    pub(crate) fn close(&self, tid: Tid) {
        if !self.is_possible {
            return;
        }
        let mut state = self.state.lock();
        assert!(state.running.tid == tid, "the running transaction is closed");
        let next = Collected::new(tid.next());
        state.closed = Some(std::mem::replace(&mut state.running, next));
    }

    /// All data in place of the closed transaction are written. Returns the checks for its record.
    /// `None`: the data must be flushed before. `logged`: the blocks that it logs.
    pub(crate) fn decide<T>(
        &self,
        tid: Tid,
        logged: &BTreeMap<HomeBlock, T>,
    ) -> Option<Vec<DataCheck>> {
        if !self.is_possible {
            return None;
        }
        let mut state = self.state.lock();
        let closed = state.closed.take().expect("the transaction was closed");
        assert!(closed.tid == tid, "one transaction commits at a time");
        let checks = closed.checks.filter(|checks| !checks.is_empty())?;
        let is_logged = |check: &DataCheck| {
            let blocks = check.blocks();
            logged.range(HomeBlock(blocks.start)..HomeBlock(blocks.end)).next().is_some()
        };
        if checks.iter().any(is_logged) {
            return None;
        }
        let blocks = checks.iter().map(DataCheck::blocks).collect();
        state.writing = Some(Checked { tid, blocks });
        Some(checks)
    }

    /// The record of the transaction is durable.
    pub(crate) fn note_committed(&self, tid: Tid) {
        if !self.is_possible {
            return;
        }
        let mut state = self.state.lock();
        state.newest = state.writing.take();
        assert!(state.newest.as_ref().is_none_or(|newest| newest.tid == tid), "one at a time");
        self.changed.notify_all();
    }
}

impl Wake for DataChecks {
    fn wake_all(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    /// Recovery refuses a record with more.
    #[test]
    fn two_threads_cannot_check_more_than_a_record_may_hold() {
        let context = Arc::new(Context::new(Options::default()));
        for (second_count, is_checked) in [(424, true), (425, false)] {
            let checks = DataChecks::new(context.clone(), true, Tid(1));
            // Both ask before either adds.
            assert!(checks.may_add(Tid(1), 600) && checks.may_add(Tid(1), second_count));
            for (home, count) in [(0, 600), (2000, second_count)] {
                let block_count = u32::try_from(count).unwrap();
                checks.add(Tid(1), DataCheck { home: HomeBlock(home), block_count, checksum: 0 });
            }
            checks.close(Tid(1));
            let decided = checks.decide::<()>(Tid(1), &BTreeMap::new());
            assert_eq!(decided.is_some(), is_checked, "{second_count} blocks more");
        }
    }
}
