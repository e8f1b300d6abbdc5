//! The judge: mounted runs on a recorded disk, cut at any event, recovered and compared with a
//! model. Crate `judge` says how; `onejournal-judge run` does more of it.
//!
//! Each kind of run gets 15 crash images: with the journal on NVRAM 30, with programs on the log
//! service 8, with a database engine 6. The gate makes a fifth of them, `ONEJOURNAL_TIMES` more.
//!
//! The threads of a run are not repeated by its seed. So canaries, which need luck, are left to
//! longer tiers, with as many tries as they may need.

use crate::support;

use std::path::PathBuf;

use judge::campaign::{Failure, Plan, Tally, judge};
use judge::crash::Fault;
use judge::databases::{self, Outcome};
use judge::engine::{DISK_BYTES, Engine};
use judge::host::Programs;
use judge::obstacle::obstacle;
use judge::open_fuse;
use judge::scenario::{SCENARIOS, Scenario};
use onejournal_testing::tier::{self, Tier, tier};
use onejournal_testing::{Need, has_shm, skip};

fn plan(fault: Fault, image_count: usize) -> Plan {
    let keep = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("judge");
    let programs = Programs {
        onejournal: support::ONEJOURNAL.into(),
        worker: onejournal_testing::again_words(module_path!(), "worker"),
    };
    Plan { programs, image_count, fault, cuts_commands: true, keep }
}

/// A process of a run: started by the judge, which says what it does.
#[test]
#[ignore = "a process of the judge"]
fn worker() {
    judge::worker::run().unwrap();
}

/// Whether a kind of run cannot be recorded here; says why.
fn is_hindered(scenario: &Scenario) -> bool {
    let found = obstacle(scenario);
    if let Some(obstacle) = &found {
        skip(obstacle.need, format!("{}: {obstacle}", scenario.name));
    }
    found.is_some()
}

/// Judges runs of the kinds that `is_chosen` takes, by their place in the list, with this number of
/// images of each in full.
fn judged(full_image_count: usize, is_chosen: impl Fn(usize, &Scenario) -> bool) {
    if !support::can_mount() || !has_shm() {
        return;
    }
    let images = tier::count(full_image_count);
    let seed = tier::seed_of("judge") >> 32;
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    let chosen =
        SCENARIOS.iter().enumerate().filter(|(place, scenario)| is_chosen(*place, scenario));
    for (place, scenario) in chosen {
        if is_hindered(scenario) {
            continue;
        }
        let found = judge(&plan(Fault::Honest, images), scenario, seed * 100 + place as u64);
        match found {
            Ok((one, failures)) => {
                tally.add(one);
                failed.extend(failures.iter().map(Failure::to_string));
            }
            Err(text) => failed.push(text),
        }
    }
    println!("{tally}");
    assert!(failed.is_empty(), "{} failures\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn crash_images_of_mounted_runs_are_a_prefix_of_history() {
    judged(15, |place, scenario| has_volume(scenario) && place % 2 == 0);
}

#[test]
fn crash_images_of_mounted_runs_keep_what_was_synced() {
    judged(15, |place, scenario| has_volume(scenario) && place % 2 == 1);
}

/// With its journal on a disk, and no server on it.
fn has_volume(scenario: &Scenario) -> bool {
    !scenario.has_nvram()
        && scenario.hosted.is_none()
        && scenario.engine.is_none()
        && !scenario.by_user
}

#[test]
#[ignore = "a process of crash_images_of_a_users_runs_are_as_they_must_be"]
fn runs_of_a_user() {
    judged(15, |_, scenario| scenario.by_user);
}

#[test]
fn crash_images_of_a_users_runs_are_as_they_must_be() {
    if !support::can_mount() {
        return;
    }
    if !open_fuse::is_needed() {
        return runs_of_a_user();
    }
    let again = onejournal_testing::again_words(module_path!(), "runs_of_a_user");
    assert!(open_fuse::run(&again).unwrap().success());
}

#[test]
fn crash_images_of_programs_that_use_the_log_service_have_what_was_acknowledged() {
    judged(8, |_, scenario| scenario.hosted.is_some());
}

#[test]
fn crash_images_of_database_engines_on_a_volume_have_what_was_acknowledged() {
    // Larger ones need more memory than other tests. `make test-databases` runs them, too.
    let is_usual = |engine: &dyn Engine| engine.disk_bytes() == DISK_BYTES;
    judged(6, |_, scenario| scenario.engine.is_some_and(is_usual));
}

/// The load of an engine must find torn pages where only metadata are journaled.
fn finds_torn_pages(canary: &str) {
    if tier() == Tier::Gate {
        return skip(Need::Tier, "whether a power cut tears a page is luck");
    }
    if !support::can_mount() || !has_shm() {
        return;
    }
    let scenario = Scenario::named(canary).unwrap();
    let report = |text: &str| println!("{text}");
    match databases::check_canary(&plan(Fault::Honest, 0), scenario, 1, report) {
        Outcome::Passed(figures) => println!("{canary}: {figures}"),
        Outcome::Failed(figures) => panic!("{canary}: no torn page is found: {figures}"),
        Outcome::Skipped(obstacle) => skip(obstacle.need, format!("{canary}: {obstacle}")),
    }
}

#[test]
fn canary_torn_pages_of_postgresql_are_found_out() {
    finds_torn_pages("postgres-untorn-ordered");
}

#[test]
fn canary_torn_pages_of_mariadb_are_found_out() {
    finds_torn_pages("mariadb-untorn-ordered");
}

#[test]
fn canary_torn_pages_of_mysql_are_found_out() {
    finds_torn_pages("mysql-untorn-ordered");
}

#[test]
fn crash_images_of_runs_with_the_journal_on_nvram_are_as_they_must_be() {
    judged(30, |_, scenario| scenario.has_nvram());
}

/// A judge that finds nothing where something is wrong is worth nothing.
fn found_out(fault: Fault, scenario: &str) {
    if tier() == Tier::Gate {
        return skip(Need::Tier, "whether the fault matters at a cut is luck");
    }
    if !support::can_mount() || !has_shm() {
        return;
    }
    let scenario = Scenario::named(scenario).unwrap();
    if is_hindered(scenario) {
        return;
    }
    // Whether a fault of the medium matters at one of 24 cuts depends on how the threads run, also
    // with the same seed.
    let is_found = |seed| !judge(&plan(fault, 24), scenario, seed).unwrap().1.is_empty();
    // With an odd seed, a program would begin with what another run has lost.
    let begins_anew = |seed: &u64| scenario.hosted.is_none() || seed.is_multiple_of(2);
    let is_any = (5..45).filter(begins_anew).take(20).any(is_found);
    assert!(is_any, "{fault:?} is not found out by 20 runs of 24 crash images");
}

#[test]
fn canary_a_disk_that_drops_flushes_is_found_out() {
    found_out(Fault::DropsFlushes, "writers");
}

#[test]
fn canary_a_disk_that_drops_flushes_is_found_out_by_sqlite_on_a_log() {
    found_out(Fault::DropsFlushes, "log-sqlite");
}

#[test]
fn canary_a_disk_that_drops_flushes_is_found_out_by_clients_of_the_daemon() {
    found_out(Fault::DropsFlushes, "logd");
}

#[test]
fn canary_a_disk_that_drops_flushes_is_found_out_by_clients_in_containers() {
    found_out(Fault::DropsFlushes, "logd-containers");
}

#[test]
fn canary_a_disk_that_drops_flushes_is_found_out_by_leveldb_on_a_log() {
    found_out(Fault::DropsFlushes, "log-leveldb");
}

#[test]
fn canary_puts_without_a_sync_are_found_out_by_leveldb_on_a_log() {
    found_out(Fault::Honest, "log-leveldb-lazy");
}

#[test]
fn canary_leveldb_without_the_plug_in_is_found_out() {
    found_out(Fault::Honest, "leveldb-plain");
}

#[test]
fn canary_a_disk_that_tears_what_is_durable_is_found_out() {
    found_out(Fault::TearsDurable, "writers");
}

#[test]
fn canary_a_disk_that_drops_flushes_is_found_out_by_redis() {
    found_out(Fault::DropsFlushes, "redis");
}

#[test]
fn canary_an_order_that_is_no_history_is_found_out_by_commits_without_syncs() {
    found_out(Fault::Honest, "sqlite-unsynced-cached");
}

#[test]
fn canary_nvram_that_drops_fences_is_found_out() {
    found_out(Fault::DropsFences, "nvram-writers");
}

#[test]
fn canary_nvram_that_tears_what_is_durable_is_found_out() {
    found_out(Fault::TearsDurable, "nvram-writers");
}
