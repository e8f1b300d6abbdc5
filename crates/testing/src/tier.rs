//! How much a search for failures does, and from which seed: `make test`, `make test-long` or
//! `make test-release`. The runner sets `ONEJOURNAL_TIER` and `ONEJOURNAL_SEED`; without them a
//! test does what the gate does, from seed 0. `ONEJOURNAL_TIMES` makes every search longer.
//!
//! A search takes its cases from [`count`], and its random numbers from [`seed_of`], [`seeds`] or
//! [`proptest_config!`](crate::proptest_config). These print what repeats the search.
//! `ONEJOURNAL_ONLY_SEED` repeats one seed of [`seeds`].
//!
//! A canary has a seed of its own, which is written beside it, because it must find its fault in
//! each run. So have regressions, and tests that need some bytes without a pattern.

use std::ops::Range;

/// The gate looks at one case of so many.
const GATE_SHARE: usize = 5;

/// How long a run of the tests may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Before each landing, in a quarter of an hour.
    Gate,
    /// Every night, with random seeds.
    Long,
    /// Before a release.
    Release,
}

/// The tier of this run.
pub fn tier() -> Tier {
    match std::env::var("ONEJOURNAL_TIER").as_deref() {
        Err(_) | Ok("gate") => Tier::Gate,
        Ok("long") => Tier::Long,
        Ok("release") => Tier::Release,
        Ok(other) => panic!("ONEJOURNAL_TIER is gate, long or release, not {other:?}"),
    }
}

/// The number of cases of a search whose full measure is `full`: a fifth of it in the gate, three
/// times as many in the longer tiers. `ONEJOURNAL_TIMES` multiplies it.
pub fn count(full: usize) -> usize {
    let count = match tier() {
        Tier::Gate => full.div_ceil(GATE_SHARE),
        Tier::Long | Tier::Release => full * 3,
    };
    count * usize::try_from(number("ONEJOURNAL_TIMES").unwrap_or(1)).expect("a small number")
}

/// [`count`] for `proptest`, which counts in 32 bits.
pub fn case_count(full: usize) -> u32 {
    u32::try_from(count(full)).expect("fewer cases than 32 bits count")
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seed of this run. In the gate it depends on the tree alone, so that a run can be repeated.
pub fn seed() -> u64 {
    number("ONEJOURNAL_SEED").unwrap_or(0)
}

/// A seed for one search of the run: different for each `name`, and printed.
pub fn seed_of(name: &str) -> u64 {
    let seed = mixed(name);
    println!("{name}: seed {seed} of {}", settings());
    seed
}

/// The seeds of a search that has `full` of them in full, as many as [`count`] says. They follow
/// one another, so that a search can have variants by the remainder of its seed.
pub fn seeds(name: &str, full: usize) -> Range<u64> {
    let seeds = seeds_without_end(name);
    let count = count(full) as u64;
    seeds.start..seeds.end.min(seeds.start + count)
}

/// The seeds of a search that counts something else than seeds, and ends itself.
pub fn seeds_without_end(name: &str) -> Range<u64> {
    let seeds = match number("ONEJOURNAL_ONLY_SEED") {
        Some(only) => only..only + 1,
        // Short numbers make short ids.
        None => mixed(name) >> 32..u64::MAX,
    };
    println!("{name}: seeds from {} of {}; or ONEJOURNAL_ONLY_SEED=SEED", seeds.start, settings());
    seeds
}

/// The seeds of a search that makes many states of each one: in the gate all `full` seeds, and a
/// fifth of their states ([`state_count`] or [`takes`]).
pub fn seeds_of_states(name: &str, full: usize) -> Range<u64> {
    let full = if tier() == Tier::Gate { full * GATE_SHARE } else { full };
    seeds(name, full)
}

/// How many states a search makes of one of [`seeds_of_states`], which are `full` in full.
pub fn state_count(full: usize) -> usize {
    if tier() == Tier::Gate { full.div_ceil(GATE_SHARE) } else { full }
}

/// Whether a search looks at state `index` of a seed: at each one, or in the gate at one of five
/// neighbours.
pub fn takes(seed: u64, index: usize) -> bool {
    let group = (index / GATE_SHARE) as u64;
    let mut random = fastrand::Rng::with_seed(seed ^ group.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    tier() > Tier::Gate || random.usize(..GATE_SHARE) == index % GATE_SHARE
}

/// What repeats the searches of this run.
fn settings() -> String {
    let tier = match tier() {
        Tier::Gate => "gate",
        Tier::Long => "long",
        Tier::Release => "release",
    };
    let times = number("ONEJOURNAL_TIMES").map(|times| format!(" ONEJOURNAL_TIMES={times}"));
    format!("ONEJOURNAL_SEED={} ONEJOURNAL_TIER={tier}{}", seed(), times.unwrap_or_default())
}

/// The run's seed, mixed with a name.
fn mixed(name: &str) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed());
    name.bytes().fold(random.u64(..), |sum, byte| {
        let sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        sum ^ sum >> 29
    })
}

/// The configuration of `proptest!` for a property with this number of cases in full: as many as
/// [`count`] says, the same ones for the same seed. `proptest!` prints the smallest input that it
/// finds to fail.
#[macro_export]
macro_rules! proptest_config {
    ($full:expr) => {
        ::proptest::test_runner::Config {
            cases: $crate::tier::case_count($full),
            rng_seed: ::proptest::test_runner::RngSeed::Fixed($crate::tier::seed_of(
                module_path!(),
            )),
            failure_persistence: None,
            ..::proptest::test_runner::Config::default()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_have_seeds_of_their_own() {
        assert_ne!(seed_of("one"), seed_of("two"));
        assert_eq!(seed_of("one"), seed_of("one"));
        assert_ne!(seeds("one", 1), seeds("two", 1));
    }

    #[test]
    fn the_gate_takes_one_state_of_five_neighbours() {
        let share = if tier() == Tier::Gate { GATE_SHARE } else { 1 };
        let taken = |seed| (0..100).filter(move |index| takes(seed, *index)).collect::<Vec<_>>();
        for seed in 0..20 {
            let groups = taken(seed).into_iter().map(|index| index / share);
            assert!(groups.eq(0..100 / share), "seed {seed}");
        }
        assert_eq!(taken(1) == taken(2), share == 1);
    }

    #[test]
    fn the_environment_sets_tier_seed_and_count() {
        let run = |variables: &[(&str, &str)]| {
            let mut command = crate::again(module_path!(), "says_its_seeds");
            for name in ["TIER", "SEED", "TIMES", "ONLY_SEED"] {
                command.env_remove(format!("ONEJOURNAL_{name}"));
            }
            command.envs(variables.iter().copied());
            let output = command.output().expect("a process");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = said.lines().find_map(|line| line.strip_prefix("first and count: "));
            let numbers = line.unwrap_or_else(|| panic!("{said}")).split_once(' ').expect("two");
            (numbers.0.parse::<u64>().expect("first"), numbers.1.parse::<u64>().expect("count"))
        };
        let gate = run(&[]);
        assert_eq!(gate.1, 2);
        assert_eq!(run(&[("ONEJOURNAL_TIER", "gate"), ("ONEJOURNAL_SEED", "0")]), gate);
        assert_eq!(run(&[("ONEJOURNAL_TIER", "long")]), (gate.0, 21));
        assert_eq!(run(&[("ONEJOURNAL_TIMES", "10")]), (gate.0, 20));
        assert_eq!(run(&[("ONEJOURNAL_ONLY_SEED", "17"), ("ONEJOURNAL_TIER", "long")]), (17, 1));
        assert_ne!(run(&[("ONEJOURNAL_SEED", "18446744073709551615")]).0, gate.0);
    }

    #[test]
    #[ignore = "a process of the test above"]
    fn says_its_seeds() {
        let seeds = seeds("a search", 7);
        println!("first and count: {} {}", seeds.start, seeds.clone().count());
    }
}
