//! Records what was done to a simulated medium, so that one run can be cut at every event.

use std::fmt::Debug;

use super::image::Image;
use super::survival::Survival;

/// The volatile cache of a simulated medium, together with the medium. Each kind of medium has one.
/// The trait is sealed: it cannot be named outside of this crate.
pub trait Volatile: Clone {
    /// An operation on the medium.
    type Event: Clone + Debug;

    /// Applies an event that has ended.
    fn apply(&mut self, event: &Self::Event);

    /// The content after a power cut during the event `in_flight`.
    fn crash(&self, survival: Survival, in_flight: Option<&Self::Event>) -> Image;

    /// The label, if the event is a mark of the workload.
    fn mark_of(event: &Self::Event) -> Option<u64>;
}

/// The image with which a run began, and its events in order.
///
/// A *cut* is the number of events that had ended when the power failed. `events[cut]`, if it
/// exists, was in flight.
#[derive(Debug, Clone)]
pub struct TraceOf<C: Volatile> {
    /// The durable content at the start.
    start: C,
    /// The events.
    pub events: Vec<C::Event>,
    /// The time of each event, by the clock of the medium, ascending.
    pub times: Vec<u64>,
}

impl<C: Volatile> TraceOf<C> {
    /// A trace that begins with `events` on top of `start`. They are older than all later events.
    pub(crate) fn new(start: C, events: Vec<C::Event>) -> Self {
        let times = vec![0; events.len()];
        TraceOf { start, events, times }
    }

    /// Adds an event with this time.
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

    /// The content after a power cut at `cut`. For many cuts use a [`CursorOf`].
    pub fn crash(&self, cut: usize, survival: Survival) -> Image {
        let mut cursor = self.cursor();
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    /// The moments that differ, for [`CursorOf::advance_to_moment`]: those of the events that are
    /// not marks, and one after the last event.
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

/// Goes forwards through the cuts of a trace.
pub struct CursorOf<'a, C: Volatile> {
    trace: &'a TraceOf<C>,
    cut: usize,
    in_flight: Option<&'a C::Event>,
    cache: C,
}

impl<'a, C: Volatile> CursorOf<'a, C> {
    /// The number of events so far.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// The state of the cache at this point, and the event in flight.
    pub(crate) fn state(&self) -> (&C, Option<&'a C::Event>) {
        (&self.cache, self.in_flight)
    }

    /// Applies the events up to `cut`. Panics if `cut` is before the present one, or after the last
    /// event.
    pub fn advance_to(&mut self, cut: usize) {
        assert!(cut >= self.cut, "a cursor only goes forwards");
        for event in &self.trace.events[self.cut..cut] {
            self.cache.apply(event);
        }
        self.cut = cut;
        self.in_flight = self.trace.events.get(cut);
    }

    /// Applies the events before `moment`. If there is an event at `moment`, a power cut leaves any
    /// part of it. Panics if `moment` is before the present one.
    ///
    /// If the traces of several media with one clock have cursors at the same moment, that is a
    /// power cut of the whole machine.
    pub fn advance_to_moment(&mut self, moment: u64) {
        let cut = self.trace.times.partition_point(|&time| time < moment);
        self.advance_to(cut);
        let is_now = self.trace.times.get(cut) == Some(&moment);
        self.in_flight = self.in_flight.filter(|_| is_now);
    }

    /// The content after a power cut at this point.
    ///
    /// At different cuts, a random survival with the same seed makes unrelated choices. Only cut
    /// and seed together identify a state.
    pub fn crash(&self, survival: Survival) -> Image {
        let survival = match survival {
            Survival::Random(seed) => Survival::Random(mix(seed, self.cut as u64)),
            extreme => extreme,
        };
        self.cache.crash(survival, self.in_flight)
    }
}

/// Combines two numbers into a seed.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    fastrand::Rng::with_seed(a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
}
