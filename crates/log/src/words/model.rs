//! Words of the model checker `loom`, which runs a test with every order in which a weakly ordered
//! machine may let its threads see each other's accesses.
//!
//! Only inside `loom::model`. A process that [dies](ModelWords::dying) runs on as a ghost: what it
//! does after its last step changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Condvar, Mutex};

/// The words that a test names, as one process sees them. There are no others, because the model
/// checker cannot follow thousands of words.
pub(super) struct ModelWords {
    shared: Arc<Shared>,
    lifespan: Arc<Lifespan>,
}

struct Shared {
    words: HashMap<usize, AtomicU64>,
    halves: HashMap<usize, (AtomicU32, Sleepers)>,
}

/// Does the work of a futex in the kernel. Under its lock, a thread compares the word and falls
/// asleep.
#[derive(Default)]
struct Sleepers {
    lock: Mutex<()>,
    woken: Condvar,
}

/// How many steps a process has left. Only the process's own thread changes this, so the model
/// checker need not follow it.
pub(super) struct Lifespan(std::sync::atomic::AtomicUsize);

impl Lifespan {
    pub(super) fn new(step_count: usize) -> Arc<Lifespan> {
        Arc::new(Lifespan(step_count.into()))
    }

    pub(super) fn endless() -> Arc<Lifespan> {
        Lifespan::new(usize::MAX)
    }

    /// Takes a step; `false`: the process is dead.
    pub(super) fn step(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A word; `None` for a ghost.
pub(super) struct ModelWord<'a>(Option<&'a AtomicU64>);

impl ModelWord<'_> {
    pub(super) fn load(&self, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.load(order))
    }

    pub(super) fn store(&self, value: u64, order: Ordering) {
        if let Some(word) = self.0 {
            word.store(value, order);
        }
    }

    /// For a ghost this seems to succeed, so that the ghost ends.
    pub(super) fn compare_exchange(
        &self,
        from: u64,
        to: u64,
        order: Ordering,
        failed: Ordering,
    ) -> Result<u64, u64> {
        self.0.map_or(Ok(from), |word| word.compare_exchange(from, to, order, failed))
    }

    pub(super) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.fetch_max(value, order))
    }

    pub(super) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.fetch_add(value, order))
    }

    pub(super) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.fetch_sub(value, order))
    }

    pub(super) fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.fetch_or(bits, order))
    }

    pub(super) fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.fetch_and(bits, order))
    }

    pub(super) fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.map_or(0, |word| word.swap(value, order))
    }
}

impl ModelWords {
    /// Words at these indexes, all zeros.
    pub(super) fn new(words: &[usize], halves: &[usize]) -> Arc<ModelWords> {
        let words = words.iter().map(|&index| (index, AtomicU64::new(0))).collect();
        let half = |&index: &usize| (index, (AtomicU32::new(0), Sleepers::default()));
        let shared = Arc::new(Shared { words, halves: halves.iter().map(half).collect() });
        Arc::new(ModelWords { shared, lifespan: Lifespan::endless() })
    }

    /// The same words in a process with that lifespan.
    pub(super) fn dying(&self, lifespan: &Arc<Lifespan>) -> Arc<ModelWords> {
        Arc::new(ModelWords { shared: self.shared.clone(), lifespan: lifespan.clone() })
    }

    pub(super) fn word(&self, index: usize) -> ModelWord<'_> {
        let word = self.shared.words.get(&index);
        let word = word.unwrap_or_else(|| panic!("word {index} is not in the model"));
        ModelWord(self.lifespan.step().then_some(word))
    }

    pub(super) fn half(&self, index: usize) -> &AtomicU32 {
        &self.shared.halves[&index].0
    }

    /// Sleeps without a limit: a wake-up that is lost is a deadlock, which the model checker
    /// reports.
    pub(super) fn wait(&self, index: usize, seen: u32) {
        let (half, sleepers) = &self.shared.halves[&index];
        let guard = sleepers.lock.lock().expect("no thread panics");
        if half.load(Ordering::SeqCst) == seen {
            drop(sleepers.woken.wait(guard).expect("no thread panics"));
        }
    }

    pub(super) fn wake_all(&self, index: usize) {
        let (_, sleepers) = &self.shared.halves[&index];
        drop(sleepers.lock.lock().expect("no thread panics"));
        sleepers.woken.notify_all();
    }
}
