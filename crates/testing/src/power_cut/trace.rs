//! What was done to a simulated medium, so that one run can be cut at every event.

use std::fmt::Debug;

use super::image::Image;
use super::survival::Survival;

/// The volatile cache before a simulated medium, and the medium behind it. Sealed, for it has no name
/// outside of this crate, which has one for each kind of medium.
pub trait Volatile: Clone {
    /// Something that is done to the medium.
    type Event: Clone + Debug;

    /// Takes in an event that has completed.
    fn apply(&mut self, event: &Self::Event);

    /// What a power cut leaves while `in_flight` was being done.
    fn crash(&self, survival: Survival, in_flight: Option<&Self::Event>) -> Image;

    /// The label, if the event is only a remark of the workload.
    fn mark_of(event: &Self::Event) -> Option<u64>;
}

/// The image a run began with, and its events in order.
///
/// A *cut* is a number of events that were done when power failed; `events[cut]`, if there
/// is one, was in flight.
#[derive(Debug, Clone)]
pub struct TraceOf<C: Volatile> {
    /// What was durable at the start, and nothing else.
    start: C,
    /// What was done.
    pub events: Vec<C::Event>,
    /// When each event was done, by the clock of the medium: ascending.
    pub times: Vec<u64>,
}

impl<C: Volatile> TraceOf<C> {
    /// A trace that begins with `events`, older than all that follow, on top of `start`.
    pub(crate) fn new(start: C, events: Vec<C::Event>) -> Self {
        let times = vec![0; events.len()];
        TraceOf { start, events, times }
    }

    /// Adds an event of that time.
    pub(crate) fn push(&mut self, event: C::Event, time: u64) {
        self.events.push(event);
        self.times.push(time);
    }

    /// The cuts that differ: before each event that is not a mark, and after the last event.
    pub fn cuts(&self) -> impl Iterator<Item = usize> {
        let is_mark = |&cut: &usize| self.events.get(cut).and_then(C::mark_of).is_some();
        (0..=self.events.len()).filter(move |cut| !is_mark(cut))
    }

    /// The marks among the first `cut` events, oldest first.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        self.events[..cut].iter().filter_map(C::mark_of)
    }

    /// What a power cut at `cut` leaves. To walk over many cuts use a [`CursorOf`].
    pub fn crash(&self, cut: usize, survival: Survival) -> Image {
        let mut cursor = self.cursor();
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    /// The moments that differ, as [`CursorOf::advance_to_moment`] takes them: those of the
    /// events that are not marks, and one after the last event.
    pub fn moments(&self) -> impl Iterator<Item = u64> {
        let cuts = self.cuts();
        cuts.map(|cut| self.times.get(cut).copied().unwrap_or(u64::MAX))
    }

    /// A cursor at cut 0.
    pub fn cursor(&self) -> CursorOf<'_, C> {
        let cache = self.start.clone();
        CursorOf { trace: self, cut: 0, in_flight: self.events.first(), cache }
    }
}

/// Walks over the cuts of a trace, forwards.
pub struct CursorOf<'a, C: Volatile> {
    trace: &'a TraceOf<C>,
    cut: usize,
    in_flight: Option<&'a C::Event>,
    cache: C,
}

impl<'a, C: Volatile> CursorOf<'a, C> {
    /// The number of events that are done.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// The cache as it is here, and the event in flight.
    pub(crate) fn state(&self) -> (&C, Option<&'a C::Event>) {
        (&self.cache, self.in_flight)
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
