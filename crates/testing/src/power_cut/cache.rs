//! The volatile cache before a simulated medium, and what of it survives a power cut.
//!
//! The durable image holds what was flushed or fenced, and what was written durably. The cache
//! holds the other writes, in the order in which they were issued. Each consists of units, the
//! sectors of a device or the words of NVRAM. A crash applies a subset of the units to the image,
//! in their order. So after several writes to one unit, any of them may be found. Such subsets
//! cover every order in which a real medium may work. They also cover every mixture of older and
//! newer words in a line that was written back more than once.

use fastrand::Rng;

use super::event::Event;
use super::image::Image;
use super::pending::Pending;
use super::piece::Piece;
use super::survival::Survival;
use super::unit::Unit;

/// A durable image, and the writes on top of it with their threads.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    durable: Image,
    pending: Pending<usize>,
    unit: Unit,
}

impl Cache {
    pub(crate) fn new(durable: Image, unit: Unit) -> Self {
        Cache { durable, pending: Pending::default(), unit }
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    pub(crate) fn durable(&self) -> &Image {
        &self.durable
    }

    /// The same without the writes that are not durable, and these as events.
    pub(crate) fn as_events(&self) -> (Cache, Vec<Event>) {
        let event = |(piece, thread): (&Piece, &usize)| Event::Write {
            offset: piece.offset(),
            data: piece.bytes().into(),
            thread: *thread,
        };
        (Cache::new(self.durable.clone(), self.unit), self.pending.iter().map(event).collect())
    }

    /// Applies an event that has ended.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { offset, data, thread } => {
                self.pending.push(Piece::new(*offset, data.clone()), *thread);
            }
            Event::DurableWrite { offset, data } => {
                let piece = Piece::new(*offset, data.clone());
                self.pending.give_way(&piece, |_| true);
                piece.write_to(&mut self.durable);
            }
            Event::Flush { thread } => self.pending.settle(&mut self.durable, |by| by == thread),
            Event::FailedWrite { thread, .. } => {
                let written = self.failed_write(event);
                written.into_iter().for_each(|piece| self.pending.push(piece, *thread));
            }
            Event::FailedFlush { seed } => self.fail_flush(*seed),
            Event::BitFlip { offset, bit } => {
                self.durable.flip_bit(*offset, *bit);
                self.pending.iter_mut().for_each(|(piece, _)| piece.flip_bit(*offset, *bit));
            }
            Event::Mark(_) => {}
        }
    }

    /// What a write that failed has written.
    pub(crate) fn failed_write(&self, event: &Event) -> Vec<Piece> {
        let Event::FailedWrite { seed, .. } = event else { return Vec::new() };
        let piece = event.piece().expect("a write");
        self.unit.torn(&piece, &mut Rng::with_seed(*seed))
    }

    /// Makes some of the unflushed writes durable, and drops the others for good: a device that has
    /// failed a flush does not repeat what it dropped.
    fn fail_flush(&mut self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        for (piece, _) in std::mem::take(&mut self.pending).iter() {
            let durable = self.unit.torn(piece, &mut rng);
            durable.iter().for_each(|piece| piece.write_to(&mut self.durable));
        }
    }

    /// The units that may survive or not: of the writes that were issued, and of the event in
    /// flight.
    pub(crate) fn units(&self, in_flight: Option<&Event>) -> Vec<Piece> {
        let issued = self.pending.iter().map(|(piece, _)| piece.clone());
        let pieces = issued.chain(in_flight.and_then(Event::piece));
        pieces.flat_map(|piece| self.unit.split(&piece)).collect()
    }

    /// The content after a power cut during the event `in_flight`.
    pub(crate) fn crash(&self, survival: Survival, in_flight: Option<&Event>) -> Image {
        let completing = in_flight.and_then(Event::piece);
        let issued = || self.pending.iter().map(|(piece, _)| piece);
        let mut image = self.durable.clone();
        let mut write = |piece: &Piece| piece.write_to(&mut image);
        match survival {
            Survival::Nothing => {}
            Survival::Issued => issued().for_each(write),
            Survival::InFlight => {
                if let Some(Event::Flush { thread }) = in_flight {
                    let own = self.pending.iter().filter(|(_, by)| *by == thread);
                    own.for_each(|(piece, _)| write(piece));
                }
                completing.iter().for_each(write);
            }
            Survival::Everything => issued().chain(&completing).for_each(write),
            Survival::Random(seed) => {
                let mut rng = Rng::with_seed(seed);
                self.unit.survivors(issued(), completing.as_ref(), &mut rng).iter().for_each(write);
            }
        }
        image
    }
}
