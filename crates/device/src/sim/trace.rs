//! What was done to a simulated device, so that one run can be cut at every event.

use std::sync::Arc;

use super::cache::{Cache, Survival};
use super::image::Image;

/// Something that was done to a simulated device.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write, durable after the next flush.
    Write {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
    },
    /// A write that was durable when it returned.
    DurableWrite {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
    },
    /// A flush.
    Flush,
    /// A write, durable or not, that failed after writing some of its sectors to the cache.
    FailedWrite {
        /// Byte offset.
        offset: u64,
        /// Whole sectors.
        data: Arc<[u8]>,
        /// Chooses the sectors that were written.
        seed: u64,
    },
    /// A flush that failed: some unflushed sectors became durable, the others never will.
    FailedFlush {
        /// Chooses the sectors that became durable.
        seed: u64,
    },
    /// A bit of the medium that changed by itself.
    BitFlip {
        /// Byte offset.
        offset: u64,
        /// 0 to 7.
        bit: u8,
    },
    /// A remark of the workload: it changes nothing on the device.
    Mark(u64),
}

/// The image a run began with, and its events in order.
///
/// A *cut* is a number of events that were done when power failed; `events[cut]`, if there
/// is one, was in flight.
#[derive(Debug, Clone)]
pub struct Trace {
    /// What was durable at the start.
    pub initial: Image,
    /// Size of a logical sector in bytes.
    pub sector_bytes: usize,
    /// What was done.
    pub events: Vec<Event>,
    /// When each event was done, by the clock of the device: ascending.
    pub times: Vec<u64>,
}

impl Trace {
    /// The cuts that differ: before each event that is not a mark, and after the last event.
    pub fn cuts(&self) -> impl Iterator<Item = usize> {
        let changes = |&cut: &usize| !matches!(self.events.get(cut), Some(Event::Mark(_)));
        (0..=self.events.len()).filter(changes)
    }

    /// The marks among the first `cut` events, oldest first.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        self.events[..cut].iter().filter_map(|event| match event {
            Event::Mark(label) => Some(*label),
            _ => None,
        })
    }

    /// What a power cut at `cut` leaves. To walk over many cuts use a [`Cursor`].
    pub fn crash(&self, cut: usize, survival: Survival) -> Image {
        let mut cursor = self.cursor();
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    /// The moments that differ, as [`Cursor::advance_to_moment`] takes them: those of the
    /// events that are not marks, and one after the last event.
    pub fn moments(&self) -> impl Iterator<Item = u64> {
        let cuts = self.cuts();
        cuts.map(|cut| self.times.get(cut).copied().unwrap_or(u64::MAX))
    }

    /// A cursor at cut 0.
    pub fn cursor(&self) -> Cursor<'_> {
        let cache = Cache::new(self.initial.clone(), self.sector_bytes);
        Cursor { trace: self, cut: 0, in_flight: self.events.first(), cache }
    }
}

/// Walks over the cuts of a trace, forwards.
pub struct Cursor<'a> {
    trace: &'a Trace,
    cut: usize,
    in_flight: Option<&'a Event>,
    cache: Cache,
}

impl Cursor<'_> {
    /// The number of events that are done.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Does the events up to `cut`. Panics when that lies behind, or after the last event.
    pub fn advance_to(&mut self, cut: usize) {
        assert!(cut >= self.cut, "a cursor only goes forwards");
        for event in &self.trace.events[self.cut..cut] {
            self.cache.apply(event);
        }
        self.cut = cut;
        self.in_flight = self.trace.events.get(cut);
    }

    /// Does the events before `moment`; of the event at `moment`, if there is one, a power cut
    /// leaves any part. Panics when that lies behind.
    ///
    /// With cursors over the traces of several media with one clock, all at the same moment,
    /// this is a power cut of the whole machine.
    pub fn advance_to_moment(&mut self, moment: u64) {
        let cut = self.trace.times.partition_point(|&time| time < moment);
        self.advance_to(cut);
        let is_now = self.trace.times.get(cut) == Some(&moment);
        self.in_flight = self.in_flight.filter(|_| is_now);
    }

    /// What a power cut here leaves.
    ///
    /// A random survival with the same seed gives unrelated choices at different cuts: only
    /// the pair is a state.
    pub fn crash(&self, survival: Survival) -> Image {
        let survival = match survival {
            Survival::Random(seed) => Survival::Random(mix(seed, self.cut as u64)),
            extreme => extreme,
        };
        self.cache.crash(survival, self.in_flight)
    }
}

/// Two numbers made into a seed.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    fastrand::Rng::with_seed(a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let write = |offset, byte| Event::Write { offset, data: vec![byte; 1024].into() };
        let events = vec![
            write(0, 1),
            Event::Mark(7),
            write(1024, 2),
            Event::Flush,
            Event::Mark(8),
            write(0, 3),
        ];
        let times = (10..).step_by(10).take(events.len()).collect();
        Trace { initial: Image::zeroed(4096), sector_bytes: 512, events, times }
    }

    #[test]
    fn cuts_are_at_everything_that_changes_the_device() {
        assert_eq!(trace().cuts().collect::<Vec<_>>(), [0, 2, 3, 5, 6]);
    }

    #[test]
    fn marks_say_what_was_done_before_a_cut() {
        assert_eq!(trace().marks_before(1).next_back(), None);
        assert_eq!(trace().marks_before(5).collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn a_cursor_gives_what_a_fresh_replay_gives() {
        let trace = trace();
        let mut cursor = trace.cursor();
        for cut in trace.cuts() {
            cursor.advance_to(cut);
            for survival in Survival::EXTREMES.into_iter().chain((0..20).map(Survival::Random)) {
                assert_eq!(cursor.crash(survival), trace.crash(cut, survival));
            }
        }
    }

    #[test]
    fn between_two_events_nothing_is_in_flight() {
        let trace = trace();
        assert_eq!(trace.moments().collect::<Vec<_>>(), [10, 30, 40, 60, u64::MAX]);
        let found = |moment| {
            let mut cursor = trace.cursor();
            cursor.advance_to_moment(moment);
            (cursor.cut(), cursor.crash(Survival::InFlight).to_bytes()[0])
        };
        assert_eq!([10, 11, 40, 41, 60, 61].map(found), {
            [(0, 1), (1, 0), (3, 1), (4, 1), (5, 3), (6, 1)]
        });
    }

    #[test]
    fn flushed_events_survive_every_later_cut() {
        let trace = trace();
        for (cut, seed) in [4, 5, 6].into_iter().flat_map(|cut| (0..50).map(move |s| (cut, s))) {
            let bytes = trace.crash(cut, Survival::Random(seed)).to_bytes();
            assert_eq!(bytes[1024..2048], [2; 1024], "cut {cut} seed {seed}");
        }
    }
}
