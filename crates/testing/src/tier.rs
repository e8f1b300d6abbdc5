//! How much a search for failures does, and from which seed: `make test`, `make test-long` or
//! `make test-release`. The runner sets `ONEJOURNAL_TIER` and `ONEJOURNAL_SEED`; without them a test
//! does what the gate does, from seed 0.

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
/// times as many in the longer tiers.
pub fn count(full: usize) -> usize {
    match tier() {
        Tier::Gate => full.div_ceil(5),
        Tier::Long | Tier::Release => full * 3,
    }
}

/// The seed of this run. In the gate it depends on the tree alone, so that a run can be repeated.
pub fn seed() -> u64 {
    match std::env::var("ONEJOURNAL_SEED") {
        Err(_) => 0,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("ONEJOURNAL_SEED={text} is no number")),
    }
}

/// A seed for one search of the run: different for each `name`, and printed.
pub fn seed_of(name: &str) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed());
    let mixed = name.bytes().fold(random.u64(..), |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    println!("{name}: seed {mixed} of ONEJOURNAL_SEED={}", seed());
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_have_seeds_of_their_own() {
        assert_ne!(seed_of("one"), seed_of("two"));
        assert_eq!(seed_of("one"), seed_of("one"));
    }
}
