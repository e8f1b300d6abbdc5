//! A model of a writer and a checkpoint, which take their locks through this module or as SQLite
//! alone takes them. Every order of their steps is tried.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Call, Index, IndexLocks, LOCK, UNLOCK};
use crate::abi::ffi::*;
use crate::faults::Fault;
use crate::format::wal::Salts;

const SHARE: c_int = SQLITE_SHM_LOCK | SQLITE_SHM_SHARED;
const UNSHARE: c_int = SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED;
const LOCKS: usize = 8;
const READER: usize = WAL_READER_LOCK as usize;

// Words of the index: the number of frames, the first salt, and the number of copied frames.
const FRAMES: usize = 4;
const SALT: usize = 8;
const COPIED: usize = 24;
const FRAMES_AT_FIRST: u32 = 10;
/// Transactions, and checkpoints. (With two of each the orders take minutes.)
const ROUNDS: [u32; 2] = [2, 1];
/// What a build with `SQLITE_ENABLE_SETLK_TIMEOUT` may have set.
const TIMEOUT_MS: c_int = 1000;

/// The locks of two files, and the index that both have mapped.
#[derive(Default)]
struct World {
    exclusive: [Option<usize>; LOCKS],
    shared: [[bool; 2]; LOCKS],
    timeouts: [c_int; 2],
}

impl World {
    fn lock(&mut self, file: usize, locks: std::ops::Range<usize>, flags: c_int) -> c_int {
        let is_taken = |world: &World, lock: usize| {
            let is_other = |holder: usize| holder != file;
            let is_shared = world.shared[lock][1 - file] && flags == LOCK;
            world.exclusive[lock].is_some_and(is_other) || is_shared
        };
        if flags & SQLITE_SHM_LOCK != 0 && locks.clone().any(|lock| is_taken(self, lock)) {
            return SQLITE_BUSY;
        }
        for lock in locks {
            match flags {
                LOCK => self.exclusive[lock] = Some(file),
                SHARE => self.shared[lock][file] = true,
                UNSHARE => assert!(std::mem::take(&mut self.shared[lock][file])),
                _ => assert_eq!(self.exclusive[lock].take(), Some(file), "lock {lock}"),
            }
        }
        SQLITE_OK
    }

    fn has_any(&self, file: usize) -> bool {
        let shares = self.shared.iter().any(|lock| lock[file]);
        shares || self.exclusive.contains(&Some(file))
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    static INDEX: [AtomicU32; 34] = const { [const { AtomicU32::new(0) }; 34] };
}

fn load(word: usize) -> u32 {
    INDEX.with(|index| index[word].load(Ordering::Relaxed))
}

fn store(word: usize, value: u32) {
    INDEX.with(|index| index[word].store(value, Ordering::Relaxed));
}

/// A file of the VFS below.
struct File {
    number: usize,
}

impl Index for File {
    fn change(&self, call: Call) -> c_int {
        WORLD.with_borrow_mut(|world| {
            let [from, count] =
                [call.offset, call.count].map(|it| usize::try_from(it).expect("a lock"));
            let is_checkpoint = from == WAL_CHECKPOINT_LOCK as usize && call.flags == LOCK;
            if is_checkpoint && world.has_any(self.number) {
                assert_eq!(world.timeouts[self.number], 0, "it waits out of SQLite's order");
            }
            world.lock(self.number, from..from + count, call.flags)
        })
    }

    fn salts(&self) -> Option<Salts> {
        let [one, other] = [load(SALT), load(SALT + 1)].map(u32::to_ne_bytes);
        Some([one, other].concat().try_into().expect("eight bytes"))
    }

    fn exchange_timeout(&self, timeout_ms: c_int) -> Option<c_int> {
        WORLD.with_borrow_mut(|world| {
            Some(std::mem::replace(&mut world.timeouts[self.number], timeout_ms))
        })
    }
}

/// Which SQLite a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Plain,
    Corrected,
    Extension,
}

/// What a step did.
#[derive(PartialEq, Eq)]
enum Step {
    Next(u32),
    /// It cannot go on before the other one does something.
    Blocked,
    Done,
}

struct Actor {
    program: Program,
    file: File,
    locks: IndexLocks,
    at: u32,
    rounds: u32,
    salt: u32,
    frames: u32,
    has_restarted: bool,
    has_copied: bool,
    is_wrong: bool,
    reader: usize,
}

impl Actor {
    fn new(program: Program, number: usize) -> Actor {
        Actor {
            program,
            file: File { number },
            locks: IndexLocks::default(),
            at: 0,
            rounds: 0,
            salt: 0,
            frames: 0,
            has_restarted: false,
            has_copied: false,
            is_wrong: false,
            reader: 0,
        }
    }

    fn call(&mut self, lock: usize, count: c_int, flags: c_int) -> bool {
        let offset = c_int::try_from(lock).expect("a lock");
        let call = Call { offset, count, flags };
        let rc = match self.program {
            Program::Extension => self.locks.change(&self.file, call),
            _ => self.file.change(call),
        };
        assert!(rc == SQLITE_OK || rc == SQLITE_BUSY, "{rc}");
        rc == SQLITE_OK
    }

    fn reads_header(&mut self) {
        (self.salt, self.frames) = (load(SALT), load(FRAMES));
    }

    fn is_same(&self) -> bool {
        (self.salt, self.frames) == (load(SALT), load(FRAMES))
    }

    /// A transaction, as in SQLite's `wal.c`.
    fn write(&mut self) -> Step {
        let at = self.at;
        match at {
            0 => self.reads_header(),
            1 => {
                self.reader = usize::from(load(COPIED) != self.frames);
                if !self.call(READER + self.reader, 1, SHARE) {
                    return Step::Done;
                }
                assert!(self.is_same(), "no other writer");
            }
            2 => assert!(self.call(0, 1, LOCK), "no other writer"),
            // Another reader's lock: no restart.
            3 if self.reader == 1 => return Step::Next(9),
            3 => match self.call(READER + 1, WAL_READERS - 1, LOCK) {
                true => self.has_restarted = true,
                false => return Step::Next(7),
            },
            4 => {
                store(SALT, self.salt + 1);
                store(FRAMES, 0);
            }
            5 => store(COPIED, 0),
            6 => assert!(self.call(READER + 1, WAL_READERS - 1, UNLOCK)),
            7 => assert!(self.call(READER, 1, UNSHARE)),
            8 if !self.call(READER + 1, 1, SHARE) => return Step::Blocked,
            8 => {}
            9 => store(FRAMES, load(FRAMES) + 3),
            _ => {
                assert!(self.call(0, 1, UNLOCK) && self.call(READER + 1, 1, UNSHARE));
                return Step::Done;
            }
        }
        Step::Next(at + 1)
    }

    /// A passive checkpoint, as in SQLite's `wal.c`.
    fn checkpoint(&mut self) -> Step {
        let at = self.at;
        match at {
            0 if !self.call(1, 1, LOCK) => return Step::Done,
            0 => {}
            1 => self.reads_header(),
            2 if load(COPIED) >= self.frames => return Step::Next(7),
            2 => {}
            3 if !self.call(READER + 1, 1, LOCK) => return Step::Next(7),
            3 => assert!(self.call(READER + 1, 1, UNLOCK)),
            4 if !self.call(READER, 1, LOCK) => return Step::Next(7),
            4 => {}
            5 if self.program == Program::Corrected && self.salt != load(SALT) => {
                return Step::Next(6);
            }
            5 => {
                self.is_wrong |= self.salt != load(SALT);
                self.has_copied = true;
                store(COPIED, self.frames);
            }
            6 => assert!(self.call(READER, 1, UNLOCK)),
            _ => {
                assert!(self.call(1, 1, UNLOCK));
                return Step::Done;
            }
        }
        Step::Next(at + 1)
    }
}

/// In how many orders something happened.
#[derive(Debug, Default)]
struct Found {
    orders: u32,
    wrong: u32,
    restarts: u32,
    copies: u32,
}

/// Runs the two in the order that `choices` says, the first one where it says nothing. Returns how
/// many could have run at each step.
fn run(choices: &[usize], copied: u32, programs: [Program; 2], found: &mut Found) -> Vec<usize> {
    WORLD.with_borrow_mut(|world| {
        *world = World { timeouts: [TIMEOUT_MS; 2], ..World::default() };
    });
    for (word, value) in [(SALT, 5), (FRAMES, FRAMES_AT_FIRST), (COPIED, copied)] {
        store(word, value);
    }
    let mut actors = [0, 1].map(|number| Actor::new(programs[number], number));
    let (mut can_run, mut is_done) = ([true; 2], [false; 2]);
    let mut widths = Vec::new();
    while is_done != [true; 2] {
        let ready: Vec<usize> = (0..2).filter(|&it| can_run[it] && !is_done[it]).collect();
        let choice = choices.get(widths.len()).copied().unwrap_or(0);
        let chosen = *ready.get(choice).expect("a deadlock");
        widths.push(ready.len());
        let actor = &mut actors[chosen];
        match if chosen == 0 { actor.write() } else { actor.checkpoint() } {
            Step::Next(at) => (actor.at, can_run) = (at, [true; 2]),
            Step::Done => {
                (actor.at, actor.rounds, can_run) = (0, actor.rounds + 1, [true; 2]);
                is_done[chosen] = actor.rounds == ROUNDS[chosen];
            }
            Step::Blocked => can_run[chosen] = false,
        }
    }
    WORLD.with_borrow(|world| {
        assert!(!world.has_any(0) && !world.has_any(1), "a lock is left");
        assert_eq!(world.timeouts, [TIMEOUT_MS; 2]);
    });
    let [writer, checkpoint] = actors;
    found.orders += 1;
    found.wrong += u32::from(checkpoint.is_wrong);
    found.restarts += u32::from(writer.has_restarted);
    found.copies += u32::from(checkpoint.has_copied);
    widths
}

/// Every order of a writer's steps and a checkpoint's.
fn explore(copied: u32, writer: Program, checkpoint: Program) -> Found {
    let mut found = Found::default();
    let mut choices = Vec::new();
    loop {
        let widths = run(&choices, copied, [writer, checkpoint], &mut found);
        choices.resize(widths.len(), 0);
        while choices.last().is_some_and(|last| last + 1 == widths[choices.len() - 1]) {
            choices.pop();
        }
        match choices.last_mut() {
            Some(last) => *last += 1,
            None => return found,
        }
    }
}

#[test]
fn plain_sqlite_copies_frames_of_another_generation_in_some_orders() {
    let found = explore(FRAMES_AT_FIRST, Program::Plain, Program::Plain);
    assert!(found.wrong > 0, "{found:?}");
    let found = explore(FRAMES_AT_FIRST, Program::Plain, Program::Corrected);
    assert!(found.wrong == 0 && found.restarts > 0, "{found:?}");
}

#[test]
fn no_order_is_wrong_if_one_of_the_two_has_the_extension() {
    use Program::{Corrected, Extension, Plain};
    for (writer, checkpoint) in [
        (Extension, Plain),
        (Extension, Corrected),
        (Extension, Extension),
        (Plain, Extension),
        (Corrected, Extension),
    ] {
        let found = explore(FRAMES_AT_FIRST, writer, checkpoint);
        assert_eq!(found.wrong, 0, "{writer:?} {checkpoint:?} {found:?}");
        assert!(found.restarts > 0 && found.orders > 1000, "{writer:?} {checkpoint:?} {found:?}");
        // Frames that are not copied yet.
        let found = explore(FRAMES_AT_FIRST - 3, writer, checkpoint);
        assert_eq!(found.wrong, 0, "{writer:?} {checkpoint:?} {found:?}");
        assert!(found.copies > 0, "{writer:?} {checkpoint:?} {found:?}");
    }
}

#[test]
fn each_rule_is_needed() {
    let copied = FRAMES_AT_FIRST;
    let found = fault::with(Fault::RestartsDuringCheckpoint, || {
        explore(copied, Program::Extension, Program::Plain)
    });
    assert!(found.wrong > 0, "{found:?}");
    let found = fault::with(Fault::CopiesAfterRestart, || {
        explore(copied, Program::Plain, Program::Extension)
    });
    assert!(found.wrong > 0, "{found:?}");
}
