//! The size of a run of an experiment.

use fastrand::Rng;

use crate::lab::Device;
use crate::results::Size;

/// A size of an experiment that repeats a paper's. The experiment takes the number from here
/// ([`Scale::size`]), and the report shows it beside the paper's.
pub struct PaperSize {
    /// What is counted, such as `transactions of a round`.
    pub what: &'static str,
    /// `None`: the paper does not say, or has no such size.
    pub paper: Option<u64>,
    pub full: u64,
    pub quick: u64,
}

impl PaperSize {
    /// A size that the paper names.
    pub const fn of(what: &'static str, paper: u64, full: u64, quick: u64) -> PaperSize {
        PaperSize { what, paper: Some(paper), full, quick }
    }

    /// A size that the paper does not name.
    pub const fn own(what: &'static str, full: u64, quick: u64) -> PaperSize {
        PaperSize { what, paper: None, full, quick }
    }
}

/// Size, rounds, seed and devices.
#[derive(Debug, Clone)]
pub struct Scale {
    pub is_quick: bool,
    rounds: Option<usize>,
    full_rounds: usize,
    pub seed: u64,
    devices: Vec<Device>,
}

const QUICK_ROUNDS: usize = 2;
const FULL_ROUNDS: usize = 5;
const FULL_ROUNDS_OF_CALM: usize = 3;

impl Scale {
    /// As the command line says.
    pub fn new(is_quick: bool, rounds: Option<usize>, seed: u64, devices: Vec<Device>) -> Scale {
        Scale { is_quick, rounds, full_rounds: FULL_ROUNDS, seed, devices }
    }

    /// For an experiment whose values hardly differ from round to round.
    pub fn of_calm(&self) -> Scale {
        Scale { full_rounds: FULL_ROUNDS_OF_CALM, ..self.clone() }
    }

    /// Rounds: five in full, or three of a calm experiment.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(self.pick(QUICK_ROUNDS, self.full_rounds))
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

    /// The size of this run.
    pub fn size<T: TryFrom<u64>>(&self, size: &PaperSize) -> T {
        let here = self.pick(size.quick, size.full);
        T::try_from(here).unwrap_or_else(|_| panic!("{}: {here} is too large", size.what))
    }

    /// The size of this run beside the paper's, for the report.
    pub fn beside_paper(&self, size: &PaperSize) -> Size {
        let PaperSize { what, paper, full, .. } = *size;
        Size { what: what.to_owned(), paper, full, here: self.size(size) }
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
