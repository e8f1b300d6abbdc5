//! The traces of a machine's media, which lose power at the same moment.

use super::image::Image;
use super::survival::Survival;
use super::trace::{Cursor, Trace};

/// The traces of media with one clock.
pub struct Traces(pub Vec<Trace>);

impl Traces {
    /// The moments at which power cuts differ, ascending.
    pub fn moments(&self) -> Vec<u64> {
        let mut moments: Vec<u64> = self.0.iter().flat_map(Trace::moments).collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// The marks on all media before `moment`, those of the first medium first.
    pub fn marks_before(&self, moment: u64) -> impl DoubleEndedIterator<Item = u64> {
        let cut = move |trace: &Trace| trace.times.partition_point(|time| *time < moment);
        self.0.iter().flat_map(move |trace| trace.marks_before(cut(trace)))
    }

    /// A cursor before the first event.
    pub fn cursor(&self) -> Cursors<'_> {
        Cursors(self.0.iter().map(Trace::cursor).collect())
    }
}

/// Goes forwards through the moments of several traces.
pub struct Cursors<'a>(Vec<Cursor<'a>>);

impl Cursors<'_> {
    /// See [`Cursor::advance_to_moment`].
    pub fn advance_to_moment(&mut self, moment: u64) {
        self.0.iter_mut().for_each(|cursor| cursor.advance_to_moment(moment));
    }

    /// The content of each medium after a power cut at this point.
    pub fn crash(&self, survival: Survival) -> Vec<Image> {
        self.0.iter().map(|cursor| cursor.crash(survival)).collect()
    }
}
