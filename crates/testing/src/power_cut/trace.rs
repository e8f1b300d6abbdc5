//! Records what was done to a simulated medium, so that one run can be cut at every event.

use super::cache::Cache;
use super::event::Event;
use super::image::Image;
use super::survival::Survival;

/// The image with which a run began, and its events in order.
///
/// A *cut* is the number of events that had ended when the power failed. `events[cut]`, if it
/// exists, was in flight.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The durable content at the start.
    start: Cache,
    /// The events.
    pub events: Vec<Event>,
    /// The time of each event, by the clock of the medium, ascending.
    pub times: Vec<u64>,
}

impl Trace {
    /// A trace that begins with `events` on top of `start`. They are older than all later events.
    pub(crate) fn new(start: Cache, events: Vec<Event>) -> Self {
        let times = vec![0; events.len()];
        Trace { start, events, times }
    }

    /// Adds an event with this time.
    pub(crate) fn push(&mut self, event: Event, time: u64) {
        self.events.push(event);
        self.times.push(time);
    }

    /// The cuts that differ: before each event that is not a mark, and after the last event.
    pub fn cuts(&self) -> impl Iterator<Item = usize> {
        let is_mark = |&cut: &usize| self.events.get(cut).and_then(Event::mark).is_some();
        (0..=self.events.len()).filter(move |cut| !is_mark(cut))
    }

    /// The marks among the first `cut` events, oldest first.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        self.events[..cut].iter().filter_map(Event::mark)
    }

    /// The content after a power cut at `cut`. For many cuts use a [`Cursor`].
    pub fn crash(&self, cut: usize, survival: Survival) -> Image {
        let mut cursor = self.cursor();
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    /// The moments that differ, for [`Cursor::advance_to_moment`]: those of the events that are
    /// not marks, and one after the last event.
    pub fn moments(&self) -> impl Iterator<Item = u64> {
        let cuts = self.cuts();
        cuts.map(|cut| self.times.get(cut).copied().unwrap_or(u64::MAX))
    }

    /// A cursor at cut 0.
    pub fn cursor(&self) -> Cursor<'_> {
        let cache = self.start.clone();
        Cursor { trace: self, cut: 0, in_flight: self.events.first(), cache }
    }
}

/// Goes forwards through the cuts of a trace.
pub struct Cursor<'a> {
    trace: &'a Trace,
    cut: usize,
    in_flight: Option<&'a Event>,
    cache: Cache,
}

impl Cursor<'_> {
    /// The number of events so far.
    pub fn cut(&self) -> usize {
        self.cut
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

    /// The number of units that a power cut here keeps or loses.
    pub fn choice_count(&self) -> usize {
        self.cache.units(self.in_flight).len()
    }

    /// The content after a power cut at this point. A unit is kept if it is one of the first 64 and
    /// its bit in `kept` is 1. All others are lost.
    pub fn crash_keeping(&self, kept: u64) -> Image {
        let mut image = self.cache.durable().clone();
        let bits = (0..u64::BITS).map(|bit| kept >> bit & 1 == 1);
        let units = self.cache.units(self.in_flight).into_iter().zip(bits);
        units.filter(|(_, keeps)| *keeps).for_each(|(unit, _)| unit.write_to(&mut image));
        image
    }

    /// Everything that a power cut at this point can leave, if that is at most `limit_count`
    /// images. Otherwise the extremes and random images, `limit_count` in all.
    pub fn crashes(&self, limit_count: usize) -> impl Iterator<Item = Image> + '_ {
        let all = u32::try_from(self.choice_count()).ok().and_then(|n| 1_u64.checked_shl(n));
        let all = all.filter(|&all| all <= limit_count as u64);
        let extremes = Survival::EXTREMES.into_iter();
        let some = extremes.chain((0..).map(Survival::Random));
        let some = some.take(if all.is_some() { 0 } else { limit_count });
        let subsets = (0..all.unwrap_or(0)).map(|kept| self.crash_keeping(kept));
        subsets.chain(some.map(|survival| self.crash(survival)))
    }
}

/// Combines two numbers into a seed.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    fastrand::Rng::with_seed(a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
}
