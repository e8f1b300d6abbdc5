//! The check of database engines: crash images of each engine on a volume, and its canaries.
//!
//! An engine that does not protect its own pages needs a file system that never leaves a part of a
//! page. So each image of such an engine must pass. The same load runs where nothing is promised of
//! pages: on the kernel's ext4, and on a volume with `data=ordered`. There at least one image must
//! have a torn page, or the load is too weak to prove anything.

use std::fmt;

use crate::campaign::{Failure, Kind, Plan, judge};
use crate::obstacle::{Obstacle, obstacle};
use crate::scenario::{CANARIES, SCENARIOS, Scenario};

/// Images of one run.
const RUN_IMAGE_COUNT: usize = 50;
/// A canary ends with its first run in which a torn page is found, or after so many runs.
const CANARY_RUN_COUNT: u64 = 5;
/// Images of a run of a canary. Cuts of a recovery are among them.
const CANARY_IMAGE_COUNT: usize = 30;

/// What was found of one kind of run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Crash images that were recovered and judged.
    pub cuts: usize,
    /// How many of them are cuts of a recovery.
    pub nested: usize,
    /// How many of them have a torn page.
    pub torn: usize,
    /// How many of them lack what was acknowledged, or are no state of the history.
    pub lost: usize,
    /// How many of them fail in any other way.
    pub damaged: usize,
}

impl Figures {
    fn add(&mut self, failures: &[Failure]) {
        let count = |kind| failures.iter().filter(|failure| failure.kind == kind).count();
        self.torn += count(Kind::Torn);
        self.lost += count(Kind::Lost);
        self.damaged += count(Kind::Damaged);
    }

    fn is_clean(&self) -> bool {
        (self.torn, self.lost, self.damaged) == (0, 0, 0)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { cuts, nested, torn, lost, damaged } = self;
        write!(
            f,
            "{cuts} cuts ({nested} of them of a recovery), {torn} torn, {lost} lost, {damaged} \
             damaged"
        )
    }
}

/// What came of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed(Figures),
    Failed(Figures),
    /// It cannot run here.
    Skipped(Obstacle),
}

/// The kinds of runs whose engine's name begins with one of `names`; all if there is no name. First
/// the runs that must pass, then the canaries.
pub fn chosen(names: &[String]) -> [Vec<&'static Scenario>; 2] {
    let is_chosen = |scenario: &&Scenario| {
        scenario.engine.is_some()
            && (names.is_empty() || names.iter().any(|name| scenario.name.starts_with(name)))
    };
    [SCENARIOS.iter().filter(is_chosen).collect(), CANARIES.iter().filter(is_chosen).collect()]
}

/// Judges `image_count` images of a kind of run. `report` is called with each failure.
pub fn check(
    plan: &Plan,
    scenario: &'static Scenario,
    image_count: usize,
    seed: u64,
    mut report: impl FnMut(&str),
) -> Outcome {
    if let Some(why) = obstacle(scenario) {
        return Outcome::Skipped(why);
    }
    let mut figures = Figures::default();
    for seed in seed.. {
        let rest = image_count - figures.cuts;
        let plan = Plan { image_count: rest.min(RUN_IMAGE_COUNT), ..plan.clone() };
        match judge(&plan, scenario, seed) {
            Ok((tally, failures)) => {
                figures.cuts += tally.images;
                figures.nested += tally.nested;
                figures.add(&failures);
                failures.iter().for_each(|failure| report(&failure.to_string()));
            }
            Err(text) => {
                report(&text);
                figures.damaged += 1;
                return Outcome::Failed(figures);
            }
        }
        if figures.cuts >= image_count {
            break;
        }
    }
    if figures.is_clean() { Outcome::Passed(figures) } else { Outcome::Failed(figures) }
}

/// Judges images of a canary until one of them has a torn page.
pub fn check_canary(
    plan: &Plan,
    scenario: &'static Scenario,
    seed: u64,
    mut report: impl FnMut(&str),
) -> Outcome {
    if let Some(why) = obstacle(scenario) {
        return Outcome::Skipped(why);
    }
    let plan = Plan { image_count: CANARY_IMAGE_COUNT, ..plan.clone() };
    let mut figures = Figures::default();
    for seed in seed..seed + CANARY_RUN_COUNT {
        match judge(&plan, scenario, seed) {
            Ok((tally, failures)) => {
                figures.cuts += tally.images;
                figures.nested += tally.nested;
                figures.add(&failures);
            }
            Err(text) => {
                report(&text);
                return Outcome::Failed(figures);
            }
        }
        if figures.torn > 0 {
            return Outcome::Passed(figures);
        }
    }
    Outcome::Failed(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_that_does_not_protect_its_pages_has_canaries() {
        let [scenarios, canaries] = chosen(&[]);
        let names = |scenarios: &[&Scenario]| -> Vec<&str> {
            scenarios.iter().map(|scenario| scenario.name).collect()
        };
        let untorn = names(&scenarios).into_iter().filter(|name| name.ends_with("-untorn"));
        let wanted = untorn.flat_map(|name| ["ordered", "ext4"].map(|how| format!("{name}-{how}")));
        assert_eq!(names(&canaries), wanted.collect::<Vec<_>>());
        let [scenarios, canaries] = chosen(&["mariadb".into(), "redis".into()]);
        assert_eq!(names(&scenarios), ["mariadb-untorn", "redis"]);
        assert_eq!(names(&canaries), ["mariadb-untorn-ordered", "mariadb-untorn-ext4"]);
    }
}
