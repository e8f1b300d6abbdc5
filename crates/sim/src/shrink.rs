//! Finds the shortest list of operations that still fails.

use crate::case::{Case, Id};
use crate::enumerate::{Effort, Failure, enumerate_recording};
use crate::op::Op;
use crate::recording::{Stage, record_ops};

/// Performs these operations, checks every crash, and returns the first failure.
fn failure_of(case: Case, ops: &[Op], effort: &Effort, stage: &Stage<'_>) -> Option<Failure> {
    match record_ops(case, ops, stage) {
        Ok(recording) => enumerate_recording(&recording, effort).err().map(|failure| *failure),
        Err(what) => Some(Failure { id: Id::run(case), what }),
    }
}

/// Removes operations from a failing run, first many at a time, then single ones, as long as the
/// rest still fails in any way. `None` if the run does not fail. The cut in the id of the failure
/// belongs to the returned operations, not to the case.
pub fn shrink(case: Case, effort: &Effort, stage: &Stage<'_>) -> Option<(Vec<Op>, Failure)> {
    let mut ops = case.workload.ops(case.seed, case.op_count);
    let mut failure = failure_of(case, &ops, effort, stage)?;
    let mut piece = ops.len().div_ceil(2);
    while piece > 0 {
        let mut start = 0;
        while start < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(start..(start + piece).min(ops.len()));
            match failure_of(case, &fewer, effort, stage) {
                Some(found) => (ops, failure) = (fewer, found),
                None => start += piece,
            }
        }
        piece /= 2;
    }
    Some((ops, failure))
}
