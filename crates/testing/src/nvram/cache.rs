//! The volatile cache before a simulated NVRAM, and what of it survives a power cut.
//!
//! The memory holds what was fenced. The cache holds the other stores, in the order in which they
//! were made. Each store consists of *atoms*: whole aligned words, and single bytes where a word is
//! stored in part. A crash applies a subset of the atoms to the memory, in their order. Such
//! subsets cover every order of write-backs. They also cover every mixture of older and newer words
//! in a line that was written back more than once.

use std::sync::Arc;

use device::LINE_BYTES;
use fastrand::Rng;

use super::event::NvramEvent;
use crate::power_cut::{
    CursorOf, Image, Piece, Survival, TraceOf, Volatile, flip_bit, write_pieces,
};

/// Bytes of a word, which is stored whole or not at all.
const WORD_BYTES: usize = 8;

/// The trace of a [`SimNvram`](crate::SimNvram).
pub type NvramTrace = TraceOf<Cache>;

/// Walks over an [`NvramTrace`].
pub type NvramCursor<'a> = CursorOf<'a, Cache>;

/// The part of an unfenced store that later stores have not replaced.
#[derive(Debug, Clone)]
struct Unfenced {
    piece: Piece,
    thread: usize,
}

/// The memory and the unfenced stores on top of it.
#[derive(Debug, Clone)]
pub struct Cache {
    memory: Image,
    unfenced: Vec<Unfenced>,
}

impl Cache {
    pub(super) fn new(memory: Image) -> Self {
        Cache { memory, unfenced: Vec::new() }
    }

    pub(super) fn memory(&self) -> &Image {
        &self.memory
    }

    /// The start of a trace: the memory, and the unfenced stores as events.
    pub(super) fn start_trace(&self) -> NvramTrace {
        let event = |Unfenced { piece, thread }: &Unfenced| NvramEvent::Store {
            offset: piece.offset(),
            data: piece.bytes().into(),
            thread: *thread,
        };
        let start = Cache::new(self.memory.clone());
        NvramTrace::new(start, self.unfenced.iter().map(event).collect())
    }

    /// Moves the stores of `thread` to memory. The bytes that they replaced must not come back.
    fn fence(&mut self, thread: usize) {
        let mut others: Vec<Unfenced> = Vec::new();
        for store in std::mem::take(&mut self.unfenced) {
            if store.thread != thread {
                others.push(store);
                continue;
            }
            let bytes = store.piece.bytes();
            let (start, end) = (store.piece.offset(), store.piece.offset() + bytes.len() as u64);
            self.memory.write(start, bytes);
            let outside = |Unfenced { piece, thread }: Unfenced| {
                piece.outside(start, end).map(move |piece| Unfenced { piece, thread })
            };
            others = others.into_iter().flat_map(outside).collect();
        }
        self.unfenced = others;
    }

    /// All atoms that may survive or not: of the unfenced stores, and of the event in flight.
    pub(super) fn atoms(&self, in_flight: Option<&NvramEvent>) -> Vec<Piece> {
        let unfenced = self.unfenced.iter().map(|store| store.piece.clone());
        unfenced
            .chain(in_flight.and_then(in_flight_piece))
            .flat_map(|piece| split(&piece))
            .collect()
    }
}

impl Volatile for Cache {
    type Event = NvramEvent;

    fn apply(&mut self, event: &NvramEvent) {
        match event {
            NvramEvent::Store { offset, data, thread } => {
                let piece = Piece::new(*offset, data.clone());
                self.unfenced.push(Unfenced { piece, thread: *thread });
            }
            NvramEvent::FailedStore { offset, data, thread, seed } => {
                let thread = *thread;
                let stored = failed_store(*offset, data, *seed);
                self.unfenced.extend(stored.into_iter().map(|piece| Unfenced { piece, thread }));
            }
            NvramEvent::Fence { thread } => self.fence(*thread),
            NvramEvent::BitFlip { offset, bit } => {
                flip_bit(&mut self.memory, *offset, *bit);
                self.unfenced.iter_mut().for_each(|store| store.piece.flip_bit(*offset, *bit));
            }
            NvramEvent::Mark(_) => {}
        }
    }

    fn crash(&self, survival: Survival, in_flight: Option<&NvramEvent>) -> Image {
        let unfenced = || self.unfenced.iter().map(|store| store.piece.clone());
        let completing = || in_flight.and_then(in_flight_piece);
        let mut image = self.memory.clone();
        match survival {
            Survival::Nothing => {}
            Survival::Issued => write_pieces(&mut image, unfenced()),
            Survival::InFlight => match in_flight {
                Some(NvramEvent::Fence { thread }) => {
                    let own = self.unfenced.iter().filter(|store| store.thread == *thread);
                    write_pieces(&mut image, own.map(|store| store.piece.clone()));
                }
                _ => write_pieces(&mut image, completing()),
            },
            Survival::Everything => write_pieces(&mut image, unfenced().chain(completing())),
            Survival::Random(seed) => {
                let survivors = choose(self.atoms(in_flight), &mut Rng::with_seed(seed));
                write_pieces(&mut image, survivors);
            }
        }
        image
    }

    fn mark_of(event: &NvramEvent) -> Option<u64> {
        if let NvramEvent::Mark(label) = event { Some(*label) } else { None }
    }
}

/// The atoms that a failed store has stored.
pub(super) fn failed_store(offset: u64, data: &Arc<[u8]>, seed: u64) -> Vec<Piece> {
    choose(split(&Piece::new(offset, data.clone())), &mut Rng::with_seed(seed))
}

fn in_flight_piece(event: &NvramEvent) -> Option<Piece> {
    match event {
        NvramEvent::Store { offset, data, .. } | NvramEvent::FailedStore { offset, data, .. } => {
            Some(Piece::new(*offset, data.clone()))
        }
        NvramEvent::Fence { .. } | NvramEvent::BitFlip { .. } | NvramEvent::Mark(_) => None,
    }
}

/// The atoms of a store.
fn split(piece: &Piece) -> Vec<Piece> {
    let len_bytes = piece.bytes().len();
    let mut atoms = Vec::new();
    let mut start = 0;
    while start < len_bytes {
        let is_aligned = (piece.offset() + start as u64).is_multiple_of(WORD_BYTES as u64);
        let is_word = is_aligned && len_bytes - start >= WORD_BYTES;
        let end = start + if is_word { WORD_BYTES } else { 1 };
        atoms.push(piece.part(start..end));
        start = end;
    }
    atoms
}

/// A random subset. There are several kinds of subsets, because each kind finds its own kind of
/// mistake.
fn choose(mut atoms: Vec<Piece>, rng: &mut Rng) -> Vec<Piece> {
    match rng.u8(..6) {
        // Each atom by itself: few, half, most of them.
        kind @ 0..3 => {
            let kept_eighths = [1, 4, 7][usize::from(kind)];
            atoms.retain(|_| rng.u8(..8) < kept_eighths);
        }
        // Each line as it was at some time.
        3 => {
            let seed = rng.u64(..);
            let count = atoms.len();
            let written_back = |atom: &Piece| {
                let line = atom.offset() / LINE_BYTES as u64;
                Rng::with_seed(seed ^ line).usize(..=count)
            };
            let mut index = 0..count;
            atoms.retain(|atom| index.next().expect("one for each") < written_back(atom));
        }
        // All but one, and only one.
        4 if !atoms.is_empty() => drop(atoms.remove(rng.usize(..atoms.len()))),
        5 if !atoms.is_empty() => atoms = vec![atoms.swap_remove(rng.usize(..atoms.len()))],
        _ => {}
    }
    atoms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(offset: u64, byte: u8, len_bytes: usize, thread: usize) -> NvramEvent {
        NvramEvent::Store { offset, data: vec![byte; len_bytes].into(), thread }
    }

    fn cache_after(events: &[NvramEvent]) -> Cache {
        let mut cache = Cache::new(Image::zeroed(256));
        events.iter().for_each(|event| cache.apply(event));
        cache
    }

    /// The results of `view` for the images of many seeds, without repetitions.
    fn found<T: Ord>(cache: &Cache, view: impl Fn(Vec<u8>) -> T) -> Vec<T> {
        let image = |seed| view(cache.crash(Survival::Random(seed), None).to_bytes());
        let mut found: Vec<_> = (0..3000).map(image).collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn a_store_is_made_of_words_and_of_single_bytes_at_its_ends() {
        let atoms = split(&Piece::new(6, vec![1; 21].into()));
        let spans: Vec<_> = atoms.iter().map(|a| (a.offset(), a.bytes().len())).collect();
        assert_eq!(spans, [(6, 1), (7, 1), (8, 8), (16, 8), (24, 1), (25, 1), (26, 1)]);
        assert!(split(&Piece::new(3, Vec::new().into())).is_empty());
    }

    #[test]
    fn unfenced_words_survive_in_every_subset_and_are_never_torn() {
        let cache = cache_after(&[store(56, 1, 24, 0)]);
        let words = found(&cache, |bytes| {
            let words: Vec<_> = bytes[56..80].chunks(8).map(<[u8]>::to_vec).collect();
            assert!(words.iter().all(|word| word == &[0; 8] || word == &[1; 8]));
            words
        });
        assert_eq!(words.len(), 8);
    }

    #[test]
    fn a_word_that_is_stored_in_part_is_torn_anywhere() {
        let cache = cache_after(&[store(1, 1, 3, 0)]);
        assert_eq!(found(&cache, |bytes| bytes[..8].to_vec()).len(), 8);
    }

    #[test]
    fn a_line_may_hold_older_and_newer_words() {
        let cache = cache_after(&[store(0, 1, 16, 0), store(0, 2, 16, 0)]);
        let pairs = found(&cache, |bytes| (bytes[0], bytes[8]));
        assert_eq!(pairs.len(), 9, "each word any of three: {pairs:?}");
    }

    #[test]
    fn a_fenced_store_is_never_lost_and_its_old_value_never_comes_back() {
        let fence = NvramEvent::Fence { thread: 0 };
        let cache = cache_after(&[store(0, 1, 8, 0), store(0, 2, 8, 0), fence, store(8, 3, 8, 0)]);
        assert_eq!(found(&cache, |bytes| (bytes[0], bytes[8])), [(2, 0), (2, 3)]);
    }

    #[test]
    fn a_fence_is_good_for_the_stores_of_its_own_thread() {
        let events = [
            store(0, 1, 8, 1),
            store(8, 1, 8, 0),
            store(8, 2, 8, 1),
            NvramEvent::Fence { thread: 1 },
        ];
        let cache = cache_after(&[&events[..], &[store(16, 4, 8, 0)]].concat());
        assert_eq!(cache.crash(Survival::Nothing, None).to_bytes()[..24], {
            [[1; 8], [2; 8], [0; 8]].concat()
        });
        let replaced = cache.crash(Survival::Issued, None).to_bytes()[8];
        assert_eq!(replaced, 2, "the older store of the other thread comes back");
        let other = cache_after(&[store(0, 1, 8, 0), NvramEvent::Fence { thread: 1 }]);
        assert_eq!(found(&other, |bytes| bytes[0]), [0, 1]);
    }

    #[test]
    fn the_extremes_tell_the_event_in_flight_from_those_before() {
        let cache = cache_after(&[store(0, 1, 8, 0), store(8, 1, 8, 1)]);
        let ends = |in_flight: &NvramEvent| {
            Survival::EXTREMES.map(|survival| {
                let bytes = cache.crash(survival, Some(in_flight)).to_bytes();
                [bytes[0], bytes[8], bytes[16]]
            })
        };
        let stores = ends(&store(16, 2, 8, 0));
        assert_eq!(stores, [[0, 0, 0], [1, 1, 0], [0, 0, 2], [1, 1, 2]]);
        let fences = ends(&NvramEvent::Fence { thread: 0 });
        assert_eq!(fences, [[0, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0]]);
    }
}
