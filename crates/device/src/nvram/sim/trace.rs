//! What was done to a simulated NVRAM, so that one run can be cut at every event.

use std::sync::Arc;

use super::cache::Cache;
use crate::sim::{mix, write_pieces};
use crate::{Image, Survival};

/// Something that was done to a simulated NVRAM. Threads are numbered by their first store or
/// fence.
#[derive(Debug, Clone)]
pub enum NvramEvent {
    /// A store, durable after the next fence of its thread.
    Store {
        /// Byte offset.
        offset: u64,
        /// Its bytes.
        data: Arc<[u8]>,
        /// Who stored.
        thread: usize,
    },
    /// A fence.
    Fence {
        /// Whose stores are durable now.
        thread: usize,
    },
    /// A store that failed after storing some of its words.
    FailedStore {
        /// Byte offset.
        offset: u64,
        /// Its bytes.
        data: Arc<[u8]>,
        /// Who stored.
        thread: usize,
        /// Chooses the words that were stored.
        seed: u64,
    },
    /// A bit of the memory that changed by itself.
    BitFlip {
        /// Byte offset.
        offset: u64,
        /// 0 to 7.
        bit: u8,
    },
    /// A remark of the workload: it changes nothing in memory.
    Mark(u64),
}

/// The image a run began with, and its events in order.
///
/// A *cut* is a number of events that were done when power failed; `events[cut]`, if there
/// is one, was in flight.
#[derive(Debug, Clone)]
pub struct NvramTrace {
    /// What was in memory at the start.
    pub initial: Image,
    /// What was done.
    pub events: Vec<NvramEvent>,
    /// When each event was done, by the clock of the memory: ascending.
    pub times: Vec<u64>,
}

impl NvramTrace {
    /// The cuts that differ: before each event that is not a mark, and after the last event.
    pub fn cuts(&self) -> impl Iterator<Item = usize> {
        let changes = |&cut: &usize| !matches!(self.events.get(cut), Some(NvramEvent::Mark(_)));
        (0..=self.events.len()).filter(changes)
    }

    /// The marks among the first `cut` events, oldest first.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        self.events[..cut].iter().filter_map(|event| match event {
            NvramEvent::Mark(label) => Some(*label),
            _ => None,
        })
    }

    /// What a power cut at `cut` leaves. To walk over many cuts use a [`NvramCursor`].
    pub fn crash(&self, cut: usize, survival: Survival) -> Image {
        let mut cursor = self.cursor();
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    /// The moments that differ, as [`NvramCursor::advance_to_moment`] takes them: those of the
    /// events that are not marks, and one after the last event.
    pub fn moments(&self) -> impl Iterator<Item = u64> {
        let cuts = self.cuts();
        cuts.map(|cut| self.times.get(cut).copied().unwrap_or(u64::MAX))
    }

    /// A cursor at cut 0.
    pub fn cursor(&self) -> NvramCursor<'_> {
        let cache = Cache::new(self.initial.clone());
        NvramCursor { trace: self, cut: 0, in_flight: self.events.first(), cache }
    }
}

/// Walks over the cuts of a trace, forwards.
pub struct NvramCursor<'a> {
    trace: &'a NvramTrace,
    cut: usize,
    in_flight: Option<&'a NvramEvent>,
    cache: Cache,
}

impl NvramCursor<'_> {
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
    /// leaves any part. Panics when that lies behind. See
    /// [`Cursor::advance_to_moment`](crate::Cursor::advance_to_moment).
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

    /// The number of words and single bytes that a power cut here keeps or loses.
    pub fn choice_count(&self) -> usize {
        self.cache.atoms(self.in_flight).len()
    }

    /// What a power cut here leaves if it keeps those of the first 64 choices whose bit in
    /// `kept` is 1, and loses the others.
    pub fn crash_keeping(&self, kept: u64) -> Image {
        let atoms = self.cache.atoms(self.in_flight);
        let bits = (0..u64::BITS).map(|bit| kept >> bit & 1 == 1);
        let mut image = self.cache.memory().clone();
        let survivors =
            atoms.into_iter().zip(bits).filter_map(|(atom, keeps)| keeps.then_some(atom));
        write_pieces(&mut image, survivors);
        image
    }

    /// All that a power cut here can leave, if that is not more than `limit_count` images;
    /// otherwise the extremes and random ones, `limit_count` in all.
    pub fn crashes(&self, limit_count: usize) -> impl Iterator<Item = Image> + '_ {
        let all = u32::try_from(self.choice_count()).ok().and_then(|n| 1_u64.checked_shl(n));
        let all = all.filter(|&all| all <= limit_count as u64);
        let extremes = Survival::EXTREMES.into_iter();
        let some = extremes.chain((0..).map(Survival::Random)).take(limit_count);
        let some = some.take(if all.is_some() { 0 } else { limit_count });
        let subsets = (0..all.unwrap_or(0)).map(|kept| self.crash_keeping(kept));
        subsets.chain(some.map(|survival| self.crash(survival)))
    }
}
