//! The size of a run of an experiment.

use fastrand::Rng;

use crate::lab::Device;

/// Size, rounds, seed and devices.
#[derive(Debug, Clone)]
pub struct Scale {
    pub is_quick: bool,
    rounds: Option<usize>,
    pub seed: u64,
    devices: Vec<Device>,
}

const QUICK_ROUNDS: usize = 2;
const FULL_ROUNDS: usize = 5;

impl Scale {
    /// As the command line says.
    pub fn new(is_quick: bool, rounds: Option<usize>, seed: u64, devices: Vec<Device>) -> Scale {
        Scale { is_quick, rounds, seed, devices }
    }

    /// Rounds: at least five in full.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.is_quick { QUICK_ROUNDS } else { FULL_ROUNDS })
    }

    /// Says on standard error which round of `what` begins.
    pub fn say_round(&self, round: usize, what: impl std::fmt::Display) {
        eprintln!("onejournal-bench: round {} of {}: {what}", round + 1, self.rounds());
    }

    /// What the command line wants instead of the usual.
    pub fn wanted_rounds(&self) -> Option<usize> {
        self.rounds
    }

    /// One value for the quick run, another for the full one.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.is_quick { quick } else { full }
    }

    /// The devices of the command line, or those of the experiment.
    pub fn devices(&self, usual: &[&str]) -> Vec<Device> {
        if self.devices.is_empty() {
            let parse = |name: &&str| name.parse().expect("a name in the program");
            return usual.iter().map(parse).collect();
        }
        self.devices.clone()
    }

    /// Random numbers of this run.
    pub fn rng(&self) -> Rng {
        Rng::with_seed(self.seed)
    }

    /// `quick` or `full`.
    pub fn name(&self) -> &'static str {
        self.pick("quick", "full")
    }
}
