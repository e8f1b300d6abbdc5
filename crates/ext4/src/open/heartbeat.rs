//! The heartbeat of a claim: a thread that increments it at intervals, so that other users of the
//! disk see it.
//!
//! Each beat first reads the claim. If it is not the claim that was written last, another machine
//! has taken the volume over. The journal is then aborted, and this machine writes nothing more.
//! That is a late notice and does not fence this machine: what it wrote between the other machine's
//! claim and the next beat is mixed with the other machine's writes. A beat that fails aborts the
//! journal, too, because other machines then assume that this one has ended.
//!
//! A beat is one write without a flush. Other machines read it from the disk's cache, and after a
//! power cut an old number is good enough.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use journal::Aborter;

use super::claim::{beaten, describe};
use super::feature_bits::FeatureBits;
use crate::layout::claim::Claim;
use crate::{Error, Holder, Result};

/// The thread, which ends when this is dropped.
pub(super) struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts the heartbeat of `claim`, which is on the volume.
    pub(crate) fn start(
        feature_bits: FeatureBits,
        claim: Claim,
        aborter: Aborter,
    ) -> Result<Heartbeat> {
        let (stop, stopped) = channel();
        let interval = Duration::from_secs(claim.heartbeat_s.into());
        let body = move || {
            let mut claim = claim;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = beat(&feature_bits, &mut claim) {
                    return aborter.abort(&error);
                }
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".into()).spawn(body);
        let thread = thread.map_err(|error| Error::NoThread(Arc::new(error)))?;
        Ok(Heartbeat { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One beat. `claim` must be on the volume; afterwards the claim there has the next number.
fn beat(feature_bits: &FeatureBits, claim: &mut Claim) -> Result<()> {
    match feature_bits.claim()? {
        Ok(Some(found)) if found == *claim => {}
        Ok(Some(other)) => {
            let why = format!("{} has taken the volume over", describe(&other));
            return Err(beaten(Holder::OtherMachine, why));
        }
        _ => {
            let why = "another machine has taken the volume over";
            return Err(beaten(Holder::OtherMachine, why.into()));
        }
    }
    claim.sequence = claim.sequence.wrapping_add(1);
    feature_bits.write_beat(claim)
}
