//! The service on simulated media: random workloads, the power cut at every event, recovery, and a
//! comparison with a model. A failure names what replays it.

mod check;
mod host;
mod model;
mod run;
mod workload;

use run::{EFFORT, Effort, Medium, run};

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Checks seeds until there were so many states.
fn campaign(medium: Medium, default_states: u64, has_faults: bool) {
    let wanted = number("ONEJOURNAL_LOG_STATES", default_states);
    let first = number("ONEJOURNAL_LOG_SEED", 1);
    let mut state_count = 0;
    let mut seed = first;
    while state_count < wanted {
        let states = run(medium, seed, EFFORT, has_faults).unwrap_or_else(|text| panic!("{text}"));
        state_count += states as u64;
        seed += 1;
    }
    println!("{medium:?}: {state_count} states, seeds {first} to {}", seed - 1);
}

#[test]
fn every_cut_leaves_what_was_acknowledged() {
    campaign(Medium::Memory, 3000, false);
}

#[test]
fn every_cut_leaves_what_was_acknowledged_on_nvram() {
    campaign(Medium::Nvram, 3000, false);
}
