//! What the region of the last record holds, for records that copy it.

use super::codec::window::Window;
use crate::faults::{self, Fault};
use crate::types::Tid;

/// The blocks of one region.
pub(crate) struct Held {
    /// The region's first transaction, which tells it from all others.
    region: Option<Tid>,
    window: Window,
}

impl Held {
    /// At most so many blocks are known.
    pub(crate) fn new(block_count_max: u32) -> Held {
        Held { region: None, window: Window::new(block_count_max) }
    }

    /// The blocks of the region with this first transaction (`None`: it has no record). Forgets
    /// those of another region.
    pub(crate) fn of_region(&mut self, region: Option<Tid>) -> &mut Window {
        let is_other = region.is_none() || region != self.region;
        if is_other && !faults::is(Fault::CopyAcrossRegions) {
            self.window.clear();
        }
        &mut self.window
    }

    /// The record that was encoded last is in the region with this first transaction.
    pub(crate) fn stay_in(&mut self, region: Tid) {
        self.region = Some(region);
    }
}
