//! The service on simulated media: random workloads, the power cut at every event, recovery, and a
//! comparison with a model. A failure names what replays it.

mod appended;
mod check;
mod client;
mod daemon;
mod found;
mod host;
mod left_behind;
mod media;
mod model;
mod run;
mod served;
mod workload;

use crate::faults::Fault;
use run::{ANYTHING, Effort, FAULTS, Medium, NARROW, SERVED, run};

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Checks seeds until this many states have been checked.
fn campaign(medium: Medium, effort: Effort, default_states: u64) {
    let wanted = number("ONEJOURNAL_LOG_STATES", default_states);
    let first = number("ONEJOURNAL_LOG_SEED", 1);
    let mut state_count = 0;
    let mut seed = first;
    while state_count < wanted {
        let states = run(medium, seed, effort).unwrap_or_else(|text| panic!("{text}"));
        state_count += states as u64;
        seed += 1;
    }
    println!("{medium:?}: {state_count} states, seeds {first} to {}", seed - 1);
}

#[test]
fn every_cut_leaves_what_was_acknowledged() {
    campaign(Medium::Memory, ANYTHING, 1500);
}

#[test]
fn every_cut_leaves_what_was_acknowledged_on_nvram() {
    campaign(Medium::Nvram, ANYTHING, 1500);
    campaign(Medium::Nvram, NARROW, 500);
}

#[test]
fn nothing_is_acknowledged_after_a_lost_write() {
    campaign(Medium::Memory, FAULTS, 700);
    campaign(Medium::Nvram, FAULTS, 700);
}

/// Clients and daemon are killed at any step, and the power is cut at any moment of it.
#[test]
fn nothing_is_lost_when_clients_or_their_daemon_die() {
    campaign(Medium::Nvram, SERVED, 1500);
    campaign(Medium::Memory, SERVED, 1500);
}

/// The checks above must find each fault of the engine.
#[test]
fn every_canary_is_caught() {
    use Fault::*;
    let canaries = [
        (Medium::Memory, DrainedBeforeSync),
        (Medium::Nvram, DrainedBeforeSync),
        (Medium::Nvram, ChunkGivenBackEarly),
        (Medium::Nvram, ChunkNotZeroed),
        (Medium::Nvram, ChunkCountsFromItsBegin),
        (Medium::Memory, ToldBeforeWritten),
        (Medium::Memory, NeverFollowsUnsynced),
        (Medium::Nvram, NeverFollowsUnsynced),
        (Medium::Memory, AlwaysFollowsUnsynced),
        (Medium::Nvram, AlwaysFollowsUnsynced),
        (Medium::Memory, UsnLimitNotKept),
        (Medium::Nvram, UsnLimitNotKept),
        (Medium::Memory, HeadNotDurable),
        (Medium::Nvram, BatchNotPersisted),
    ];
    for (medium, fault) in canaries {
        let effort = if fault == ChunkNotZeroed { NARROW } else { ANYTHING };
        expect_caught(medium, effort, fault, 1);
    }
}

/// The same for faults of the daemon.
#[test]
fn every_canary_of_the_daemon_is_caught() {
    use Fault::*;
    let canaries = [
        (Medium::Nvram, LivingLeaseEnded, 1),
        (Medium::Memory, LivingLeaseEnded, 1),
        (Medium::Nvram, LastWordsNotTaken, 1),
        (Medium::Nvram, DeadClientsChunksFreed, 1),
        // Few seeds notice: it takes a death at one step, and a power cut before the next sync.
        (Medium::Memory, FoundStreamNotKept, 41),
        (Medium::Nvram, FoundFileNotSettled, 272),
    ];
    for (medium, fault, first_seed) in canaries {
        expect_caught(medium, SERVED, fault, first_seed);
    }
}

fn expect_caught(medium: Medium, effort: Effort, fault: Fault, first_seed: u64) {
    let find = || (first_seed..first_seed + 200).find_map(|seed| found_by(medium, effort, seed));
    let found = fault::with(fault, find);
    let found = found.unwrap_or_else(|| panic!("{medium:?}, {fault:?}: nobody noticed"));
    println!("{fault:?}: {found}");
}

/// What is wrong with the seed. An operation that fails counts as wrong.
fn found_by(medium: Medium, effort: Effort, seed: u64) -> Option<String> {
    let checked = std::panic::catch_unwind(|| run(medium, seed, effort));
    match checked {
        Ok(checked) => checked.err(),
        Err(_) => Some(format!("{medium:?} seed {seed}: an operation failed")),
    }
}
