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

use std::fmt::Debug;

use crate::faults::Fault;
use media::Lie;
use onejournal_testing::{test_name, tier};
use run::{ANYTHING, Effort, FAULTS, Medium, NARROW, SERVED, STOPS, run};

/// Checks seeds: all of them in the gate, too, with a fifth of their crash states.
fn campaign(name: &str, medium: Medium, effort: Effort, full_seed_count: usize) {
    let effort = Effort { state_count: tier::state_count(effort.state_count), ..effort };
    let mut state_count = 0;
    for seed in tier::seeds_of_states(&format!("{name} {medium:?}"), full_seed_count) {
        state_count += run(medium, seed, effort).unwrap_or_else(|text| panic!("{text}"));
    }
    println!("{medium:?}: {state_count} states");
}

#[test]
fn every_cut_leaves_what_was_acknowledged() {
    campaign(test_name!(), Medium::Memory, ANYTHING, 2);
}

#[test]
fn every_cut_leaves_what_was_put_aside() {
    campaign(test_name!(), Medium::Memory, STOPS, 2);
}

#[test]
fn every_cut_leaves_what_was_acknowledged_on_nvram() {
    campaign(test_name!(), Medium::Nvram, ANYTHING, 2);
    campaign("narrow", Medium::Nvram, NARROW, 1);
}

#[test]
fn nothing_is_acknowledged_after_a_lost_write() {
    campaign(test_name!(), Medium::Memory, FAULTS, 1);
    campaign(test_name!(), Medium::Nvram, FAULTS, 1);
}

/// Clients and daemon are killed at any step, and the power is cut at any moment of it.
#[test]
fn nothing_is_lost_when_clients_or_their_daemon_die() {
    campaign(test_name!(), Medium::Nvram, SERVED, 10);
    campaign(test_name!(), Medium::Memory, SERVED, 10);
}

/// The checks above must find each fault of the engine. The seeds are fixed, and begin with the one
/// that finds the fault today.
#[test]
fn every_canary_is_caught() {
    use Fault::*;
    let canaries = [
        (Medium::Memory, DrainedBeforeSync),
        (Medium::Nvram, DrainedBeforeSync),
        (Medium::Nvram, ChunkGivenBackEarly),
        (Medium::Nvram, ChunkNotZeroed),
        (Medium::Nvram, ChunkCountsFromItsBegin),
        (Medium::Memory, NeverFollowsUnsynced),
        (Medium::Nvram, NeverFollowsUnsynced),
        (Medium::Memory, AlwaysFollowsUnsynced),
        (Medium::Nvram, AlwaysFollowsUnsynced),
    ];
    for (medium, fault) in canaries {
        let effort = if fault == ChunkNotZeroed { NARROW } else { ANYTHING };
        expect_caught(medium, effort, fault, 1);
    }
}

/// The same for promises that the machine breaks.
#[test]
fn every_lie_of_the_machine_is_caught() {
    use Lie::*;
    let lies = [
        (Medium::Memory, ANYTHING, GroupEntriesCached, 1),
        (Medium::Memory, ANYTHING, UsnLimitNotKept, 1),
        (Medium::Nvram, ANYTHING, UsnLimitNotKept, 1),
        (Medium::Memory, ANYTHING, HeadNotSynced, 3),
        (Medium::Nvram, ANYTHING, FencesIgnored, 1),
        (Medium::Memory, STOPS, QuarantineNotSynced, 1),
        // Few seeds notice: it takes a death at one step, and a power cut before the next sync.
        (Medium::Memory, SERVED, FoundStreamNotKept, 52),
        (Medium::Nvram, SERVED, FoundNamesNotSynced, 274),
    ];
    for (medium, effort, lie, first_seed) in lies {
        expect_caught(medium, effort, lie, first_seed);
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
    ];
    for (medium, fault, first_seed) in canaries {
        expect_caught(medium, SERVED, fault, first_seed);
    }
}

fn expect_caught(
    medium: Medium,
    effort: Effort,
    fault: impl fault::Fault + Debug,
    first_seed: u64,
) {
    let find = || (first_seed..first_seed + 200).find_map(|seed| found_by(medium, effort, seed));
    let found = fault::with(fault, find);
    let found = found.unwrap_or_else(|| panic!("{medium:?}, {fault:?}: not caught"));
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
