//! What the region of the last record holds, for records that copy it.

use super::codec::window::Window;
use super::interest::{CREDIT_MAX, Interest};
use crate::faults::{self, Fault};
use crate::observer::BlockOwner;
use crate::types::Tid;

/// The blocks of one region.
pub(crate) struct Held {
    /// The region's first transaction, which tells it from all others.
    region: Option<Tid>,
    pub(super) window: Window,
    /// Stays from region to region.
    pub(super) interest: Interest,
}

impl Held {
    /// At most so many blocks are known.
    pub(crate) fn new(block_count_max: u32) -> Held {
        let interest = Interest::new(CREDIT_MAX);
        Held { region: None, window: Window::new(block_count_max), interest }
    }

    /// The next record is encoded for the region with this first transaction (`None`: it has no
    /// record). Forgets the blocks of another region. Returns whether the region has none.
    pub(crate) fn enter(&mut self, region: Option<Tid>) -> bool {
        let is_other = region.is_none() || region != self.region;
        if is_other && !faults::is(Fault::CopyAcrossRegions) {
            self.window.clear();
        }
        self.window.is_empty()
    }

    /// These owners' numbers belong to new files.
    pub(crate) fn forget(&mut self, owners: &[BlockOwner]) {
        owners.iter().for_each(|owner| self.interest.forget(*owner));
    }

    /// The record that was encoded last is in the region with this first transaction.
    pub(crate) fn stay_in(&mut self, region: Tid) {
        self.region = Some(region);
    }
}
