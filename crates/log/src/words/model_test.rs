//! The protocol of the shared words under a weak memory model; each pair of accesses that carries
//! data (`words`), and each with an ordering taken away, which must be found.
//!
//! Records are relaxed atomics here: a plain access that no ordering protects.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, AtomicU64};

use super::control::at as control_at;
use super::lane::at as lane_at;
use super::model::{Lifespan, ModelWords};
use super::{ChunkState, Client, Control, DrainerClaim, LaneWords, after_reads, before_writes};
use crate::StreamId;
use crate::faults::Fault;

/// Bytes of a record.
const RECORD: u64 = 64;

/// Words of a lane that the tests use.
const LANE: [usize; 11] = [
    lane_at::LESSEE,
    lane_at::APPENDED,
    lane_at::WANTED,
    lane_at::SYNCED,
    lane_at::DRAINED,
    lane_at::DRAINER,
    lane_at::RECORD_COUNT,
    lane_at::PAYLOAD_BYTES,
    lane_at::LAST_USN,
    lane_at::SUSPECT,
    lane_at::CHUNKS,
];

/// Runs `f` in every order of its threads' steps. Threads that could go on are interrupted at most
/// three times.
fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// Whether `f`, run in every order with this fault, fails.
fn finds(fault: Fault, f: impl Fn() + Sync + Send + 'static) -> bool {
    fault::with(fault, || catch_unwind(AssertUnwindSafe(|| explore(f))).is_err())
}

fn append(words: &LaneWords, end: u64) {
    words.appender().publish_appended(end, 1, RECORD, 1);
}

/// Pair 1: a published record is seen.
fn a_published_record_is_seen() {
    let words = ModelWords::new(&LANE, &[]);
    let record = Arc::new(AtomicU64::new(0));
    let lessee = {
        let (words, record) = (LaneWords::model(words.clone()), record.clone());
        loom::thread::spawn(move || {
            record.store(7, Relaxed);
            append(&words, RECORD);
        })
    };
    if LaneWords::model(words).appended() == RECORD {
        assert_eq!(record.load(Relaxed), 7, "the record that was published");
    }
    lessee.join().expect("no panic");
}

/// Pair 2: two processes append to one lane. The first may die after any step. Then the second
/// takes its lease.
fn a_lease_changes_hands(first_steps: usize) {
    let words = ModelWords::new(&LANE, &[]);
    let records: Arc<[AtomicU64; 3]> = Arc::new([(); 3].map(|()| AtomicU64::new(0)));
    let is_first_dead = Arc::new(AtomicBool::new(false));
    let (first, second) = (Client::new(0, 1), Client::new(1, 2));
    let lifespan = Lifespan::new(first_steps);
    let other = {
        let words = LaneWords::model(words.dying(&lifespan));
        let (records, is_dead) = (records.clone(), is_first_dead.clone());
        loom::thread::spawn(move || {
            if words.claim_lessee(first, |_| false).is_some() {
                let position = words.appended();
                if lifespan.step() {
                    records[(position / RECORD) as usize].store(1, Relaxed);
                }
                append(&words, position + RECORD);
                words.release_lessee();
            }
            if lifespan.is_over() {
                is_dead.store(true, Release);
            }
        })
    };
    let words = LaneWords::model(words);
    let is_dead = |held| held == first && is_first_dead.load(Acquire);
    if let Some(before) = words.claim_lessee(second, is_dead) {
        let position = words.appended();
        let slot = (position / RECORD) as usize;
        if position > 0 {
            assert_eq!(records[slot - 1].load(Relaxed), 1, "what the lessee before appended");
        }
        if before == first {
            // It was not published.
            records[slot].store(0, Relaxed);
        }
        assert_eq!(records[slot].load(Relaxed), 0, "nothing is after the end");
        records[slot].store(2, Relaxed);
        append(&words, position + RECORD);
        words.release_lessee();
    }
    other.join().expect("no panic");
    let end = (words.appended() / RECORD) as usize;
    let found: Vec<u64> = records.iter().map(|record| record.load(Relaxed)).collect();
    assert!(found[..end].iter().all(|&record| record > 0), "{found:?} up to {end}");
    let is_left = is_first_dead.load(Relaxed);
    assert!(is_left || found[end..].iter().all(|&record| record == 0), "{found:?} up to {end}");
}

/// A stream whose record is in a chunk, and not in its file yet.
struct RecordInChunk {
    control: Arc<ModelWords>,
    words: Arc<ModelWords>,
    chunk: Arc<AtomicU64>,
}

impl RecordInChunk {
    fn of(owner: StreamId) -> RecordInChunk {
        let pool = [control_at::CHUNKS, control_at::FREED_WAITERS];
        let control = ModelWords::new(&pool, &[control_at::FREED]);
        let words = ModelWords::new(&LANE, &[]);
        let lane = LaneWords::model(words.clone());
        assert!(Control::model(control.clone()).take_chunk(0, owner));
        lane.set_chunk(0, 0);
        let chunk = Arc::new(AtomicU64::new(1));
        append(&lane, RECORD);
        RecordInChunk { control, words, chunk }
    }
}

/// Pair 3: the drainer frees a chunk, another stream's writer takes it, and a reader reads it at
/// the same time.
fn a_chunk_is_used_again() {
    let (owner, next) = (StreamId(0), StreamId(1));
    let RecordInChunk { control, words, chunk } = RecordInChunk::of(owner);
    let file = Arc::new(AtomicU64::new(0));
    let drainer = {
        let (lane, control) = (LaneWords::model(words.clone()), Control::model(control.clone()));
        let (chunk, file) = (chunk.clone(), file.clone());
        loom::thread::spawn(move || {
            let claim = lane.claim_drainer(Client::new(0, 1), |_| false).expect("none drains");
            assert_eq!(lane.appended(), RECORD);
            file.store(chunk.load(Relaxed), Relaxed);
            claim.mark_drained(RECORD);
            assert!(control.begin_freeing(0, owner));
            lane.clear_chunk(0);
            control.free_chunk(0);
            claim.release();
        })
    };
    let allocator = {
        let (lane, control) = (LaneWords::model(words.clone()), Control::model(control));
        let chunk = chunk.clone();
        loom::thread::spawn(move || {
            if control.take_chunk(0, next) {
                before_writes(&lane);
                chunk.store(2, Relaxed);
            }
        })
    };
    // As `Anywhere` reads.
    let lane = LaneWords::model(words);
    let found = match lane.drained() {
        0 => {
            let found = chunk.load(Relaxed);
            after_reads(&lane);
            match lane.drained() {
                0 => found,
                _ => file.load(Relaxed),
            }
        }
        _ => file.load(Relaxed),
    };
    assert_eq!(found, 1, "the stream's record");
    drainer.join().expect("no panic");
    allocator.join().expect("no panic");
}

/// 2 and 3, while a drainer dies after any step: the next one finishes what it began, and another
/// stream gets the chunk.
fn a_drainer_may_die(first_steps: usize) {
    let (owner, next) = (StreamId(0), StreamId(1));
    let RecordInChunk { control, words, chunk } = RecordInChunk::of(owner);
    let file = Arc::new(AtomicU64::new(0));
    let is_first_dead = Arc::new(AtomicBool::new(false));
    let (first, second) = (Client::new(0, 1), Client::new(1, 2));
    // As `Service::drain`, which puts a suspect lane in order.
    let drain = {
        let (chunk, file) = (chunk.clone(), file.clone());
        move |lane: &LaneWords, control: &Control, claim: &DrainerClaim, own: &Lifespan| {
            if lane.drained() < RECORD {
                let record = chunk.load(Relaxed);
                if own.step() {
                    file.store(record, Relaxed);
                }
                claim.mark_drained(RECORD);
            }
            match (lane.is_suspect(), lane.chunk(0), control.chunk_state(0)) {
                (true, Some(_), ChunkState::Freeing(_)) => {
                    lane.clear_chunk(0);
                    control.free_chunk(0);
                }
                (true, None, ChunkState::Allocated(of) | ChunkState::Freeing(of))
                    if of == owner =>
                {
                    control.free_chunk(0);
                }
                (_, Some(_), _) if control.begin_freeing(0, owner) => {
                    lane.clear_chunk(0);
                    control.free_chunk(0);
                }
                _ => {}
            }
            claim.release();
        }
    };
    let dying = {
        let lifespan = Lifespan::new(first_steps);
        let lane = LaneWords::model(words.dying(&lifespan));
        let control = Control::model(control.dying(&lifespan));
        let (drain, is_dead) = (drain.clone(), is_first_dead.clone());
        loom::thread::spawn(move || {
            if let Some(claim) = lane.claim_drainer(first, |_| false) {
                drain(&lane, &control, &claim, &lifespan);
            }
            if lifespan.is_over() {
                is_dead.store(true, Release);
            }
        })
    };
    let allocator = {
        let (lane, control) = (LaneWords::model(words.clone()), Control::model(control.clone()));
        let chunk = chunk.clone();
        loom::thread::spawn(move || {
            if control.take_chunk(0, next) {
                before_writes(&lane);
                chunk.store(2, Relaxed);
            }
        })
    };
    let (lane, control) = (LaneWords::model(words), Control::model(control));
    let is_dead = |held| held == first && is_first_dead.load(Acquire);
    let claimed = lane.claim_drainer(second, is_dead);
    if let Some(claim) = &claimed {
        drain(&lane, &control, claim, &Lifespan::endless());
    }
    if lane.drained() == RECORD {
        assert_eq!(file.load(Relaxed), 1, "the stream's record");
    }
    dying.join().expect("no panic");
    allocator.join().expect("no panic");
    if claimed.is_some() {
        assert_eq!((lane.drained(), lane.chunk(0)), (RECORD, None), "drained and freed");
        let state = control.chunk_state(0);
        assert!(
            matches!(state, ChunkState::Free) || state == ChunkState::Allocated(next),
            "{state:?}"
        );
    }
}

/// Two streams that share a group log.
struct Group {
    control: Arc<ModelWords>,
    lanes: [Arc<ModelWords>; 2],
    records: [AtomicU64; 2],
    is_first_dead: AtomicBool,
}

impl Group {
    fn new() -> Arc<Group> {
        let words = [
            control_at::LEADER,
            control_at::PENDING,
            control_at::EPOCH_WAITERS,
            control_at::ARRIVALS_WANTED,
            control_at::GROUP_UNSURE,
            control_at::LEADS,
        ];
        Arc::new(Group {
            control: ModelWords::new(&words, &[control_at::EPOCH, control_at::ARRIVALS]),
            lanes: [(); 2].map(|()| ModelWords::new(&LANE, &[])),
            records: [(); 2].map(|()| AtomicU64::new(0)),
            is_first_dead: AtomicBool::new(false),
        })
    }

    /// Makes the waiting streams' records durable, as `Service::lead` does.
    fn lead(&self, control: &Control, lanes: &[LaneWords; 2]) {
        let mut indexes = Vec::new();
        control.take_pending_word(0, &mut indexes);
        for index in indexes {
            let end = lanes[index].wanted().min(lanes[index].appended());
            if end > 0 {
                assert_eq!(self.records[index].load(Relaxed), 1, "the record of stream {index}");
                lanes[index].mark_synced(end);
            }
        }
    }

    /// Appends a record to stream `own` and makes it durable, as `Service::commit_to` does. With a
    /// process that may die, waiters must not sleep: it would never wake them. They time out
    /// instead.
    fn commit(&self, own: usize, lifespan: &Arc<Lifespan>, sleeps: bool) {
        let control = Control::model(self.control.dying(lifespan));
        let lanes = [0, 1].map(|lane: usize| LaneWords::model(self.lanes[lane].dying(lifespan)));
        let me = Client::new(own, own as u64 + 1);
        let is_dead = |held| held == Client::new(0, 1) && self.is_first_dead.load(Acquire);
        if lifespan.step() {
            self.records[own].store(1, Relaxed);
        }
        append(&lanes[own], RECORD);
        lanes[own].want(RECORD);
        while !lifespan.is_over() && lanes[own].synced() < RECORD {
            let epoch = control.epoch();
            control.set_pending(own);
            if control.claim_leader(me, is_dead) {
                self.lead(&control, &lanes);
                control.release_leader();
                // A leader that died may have taken its bit: `Service` drains the lane then.
                assert!(!sleeps || lanes[own].synced() == RECORD, "its own, too");
            } else if sleeps && lanes[own].synced() < RECORD {
                control.wait_epoch(epoch, Duration::MAX);
            } else {
                loom::thread::yield_now();
            }
        }
    }
}

/// Pairs 4 and 5: two streams commit together. Each may lead, and the leader wakes the other.
fn streams_share_a_commit() {
    let group = Group::new();
    let other = {
        let group = group.clone();
        loom::thread::spawn(move || group.commit(0, &Lifespan::endless(), true))
    };
    group.commit(1, &Lifespan::endless(), true);
    other.join().expect("no panic");
}

/// As above, while one of the processes dies after any step. The other's record still becomes
/// durable.
fn a_leader_may_die(first_steps: usize) {
    let group = Group::new();
    let other = {
        let group = group.clone();
        loom::thread::spawn(move || {
            let lifespan = Lifespan::new(first_steps);
            group.commit(0, &lifespan, false);
            if lifespan.is_over() {
                group.is_first_dead.store(true, Release);
            }
        })
    };
    group.commit(1, &Lifespan::endless(), false);
    other.join().expect("no panic");
}

#[test]
fn published_records_are_seen() {
    explore(a_published_record_is_seen);
    assert!(finds(Fault::WordsWrittenRelaxed, a_published_record_is_seen));
    assert!(finds(Fault::WordsReadRelaxed, a_published_record_is_seen));
}

#[test]
fn leases_change_hands_also_from_the_dead() {
    // More steps than there are: it lives.
    for steps in 0..14 {
        explore(move || a_lease_changes_hands(steps));
    }
    let lives = || a_lease_changes_hands(usize::MAX);
    explore(lives);
    assert!(finds(Fault::ClaimsRelaxed, lives));
    assert!(finds(Fault::WordsWrittenRelaxed, lives));
}

#[test]
fn chunks_are_used_again() {
    explore(a_chunk_is_used_again);
    for fault in [Fault::ReadsUnfenced, Fault::WritesUnfenced, Fault::ClaimsRelaxed] {
        assert!(finds(fault, a_chunk_is_used_again), "{fault:?}");
    }
}

#[test]
fn drainers_may_die() {
    // More steps than there are: it lives.
    for steps in 0..18 {
        explore(move || a_drainer_may_die(steps));
    }
    assert!(finds(Fault::WordsWrittenRelaxed, || a_drainer_may_die(usize::MAX)));
    assert!(finds(Fault::ClaimsRelaxed, || a_drainer_may_die(usize::MAX)));
}

#[test]
fn streams_share_commits() {
    explore(streams_share_a_commit);
    assert!(finds(Fault::WaitersUnfenced, streams_share_a_commit));
    assert!(finds(Fault::WordsWrittenRelaxed, streams_share_a_commit));
}

#[test]
fn leaders_may_die() {
    for steps in 0..30 {
        explore(move || a_leader_may_die(steps));
    }
}
