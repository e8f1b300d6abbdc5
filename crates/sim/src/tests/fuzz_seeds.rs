//! The short run: all seeds in `fuzz/seeds`, and a number of mutations of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::fuzz::Target;
use crate::fuzz::mutate::mutate;
use crate::fuzz::volume_open::{self, Hands};
use device::BlockDevice;
use fastrand::Rng;
use onejournal_testing::{Layer, Layered, test_name, tier};

/// An input that takes longer counts as endless.
const PATIENCE: Duration = Duration::from_secs(60);

/// Peak of the memory in use, in KiB, that the short run may reach.
const MEMORY_LIMIT_KIB: u64 = 400 << 10;

fn seeds(target: Target) -> Vec<Vec<u8>> {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds", target.name()].iter().collect();
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("seeds")
        .map(|entry| entry.expect("seed").path())
        .collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// The seeds, then mutations of them that depend on the number `rng_seed`.
fn inputs(target: Target, mutation_count: usize, rng_seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let seeds = seeds(target);
    assert!(seeds.len() >= 10, "{}: {} seeds", target.name(), seeds.len());
    let mut rng = Rng::with_seed(rng_seed);
    let all = seeds.clone();
    let mutations = (0..mutation_count).map(move |_| {
        let input = &all[rng.usize(..all.len())];
        mutate(input, &all[rng.usize(..all.len())], &mut rng)
    });
    seeds.into_iter().chain(mutations)
}

fn hex(input: &[u8]) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first input on which `run` fails, and its failure.
fn first_failure(
    inputs: impl Iterator<Item = Vec<u8>> + Send + 'static,
    run: impl Fn(&[u8]) + Send + 'static,
) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(fault::carry(move || {
        for input in inputs {
            sender.send((input.clone(), None)).expect("the test listens");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&input))) {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
                sender.send((input, text.or(Some("?".into())))).expect("the test listens");
                return;
            }
        }
    }));
    let mut current = Vec::new();
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok((input, Some(text))) => return Some(format!("{text}\ninput: {}", hex(&input))),
            Ok((input, None)) => current = input,
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Some(format!("it does not end\ninput: {}", hex(&current)));
            }
        }
    }
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn short_run(name: &str, target: Target, full_mutation_count: usize) {
    let inputs = inputs(target, tier::count(full_mutation_count), tier::seed_of(name));
    let failure = first_failure(inputs, move |input| target.run(input));
    if let Some(text) = failure {
        panic!("{}: {text}", target.name());
    }
    let peak = peak_memory_kib();
    println!("{}: peak memory {peak} KiB", target.name());
    assert!(peak < MEMORY_LIMIT_KIB, "{}: peak memory {peak} KiB", target.name());
}

#[test]
fn journal_reader() {
    onejournal_testing::own_process!();
    short_run(test_name!(), Target::JournalReader, 40000);
}

#[test]
fn volume_open() {
    onejournal_testing::own_process!();
    short_run(test_name!(), Target::VolumeOpen, 9000);
}

/// Changes some of what is read from a volume, after it was opened in most cases.
struct Meddler {
    seed: u64,
    read_count: AtomicU64,
}

impl Layer for Meddler {
    fn read(&self, device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        device.read(offset, buf)?;
        let number = self.read_count.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::with_seed(self.seed ^ number << 32);
        if number > self.seed % 256 && rng.u8(..4) == 0 {
            for _ in 0..rng.usize(1..4) {
                // The beginning of a block says most about it.
                let end = if rng.bool() { 64 } else { buf.len() };
                let any = rng.u8(..);
                buf[rng.usize(..end.min(buf.len()))] = [0, 1, 0xff, any][rng.usize(..4)];
            }
        }
        Ok(())
    }
}

/// The owner of an image writes to it while it is mounted. Without checksums nothing else shows it.
#[test]
fn a_volume_that_changes_while_it_is_used_never_panics() {
    onejournal_testing::own_process!();
    let mut rng = Rng::with_seed(tier::seed_of(test_name!()));
    // The volumes without checksums are the last two. They are opened for writing.
    let inputs = (0..tier::count(4000)).map(move |_| {
        let head = [rng.u8(6..8), rng.u8(..) & !2];
        [&head[..], &rng.u64(..).to_le_bytes()].concat()
    });
    let failure = first_failure(inputs, |input| {
        let seed = u64::from_le_bytes(input[2..].try_into().expect("eight bytes"));
        let wrap = move |device| -> Arc<dyn BlockDevice> {
            Arc::new(Layered::new(device, Meddler { seed, read_count: AtomicU64::new(0) }))
        };
        volume_open::run(input, &Hands { wrap: &wrap });
    });
    if let Some(text) = failure {
        panic!("{text}");
    }
}

/// Faults that must be found, by mutations that are always the same.
mod canary {
    use super::*;
    use device::Result;

    const RNG_SEED: u64 = 7;

    /// Does `spoil` to what is read, with the number of the read.
    struct Spoil {
        read_count: AtomicU64,
        spoil: fn(u64, &mut [u8]),
    }

    impl Layer for Spoil {
        fn read(&self, device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> Result<()> {
            device.read(offset, buf)?;
            (self.spoil)(self.read_count.fetch_add(1, Ordering::Relaxed), buf);
            Ok(())
        }
    }

    fn found(spoil: fn(u64, &mut [u8])) -> Option<String> {
        let run = move |input: &[u8]| {
            let wrap = move |device| -> Arc<dyn BlockDevice> {
                Arc::new(Layered::new(device, Spoil { read_count: AtomicU64::new(0), spoil }))
            };
            volume_open::run(input, &Hands { wrap: &wrap });
        };
        first_failure(inputs(Target::VolumeOpen, 2000, RNG_SEED), run)
    }

    #[test]
    fn a_panic_at_what_no_sound_volume_has_is_found() {
        let failure = found(|_, bytes| {
            // A block of extended attributes whose first name is none of ours.
            let is_ours = [5, 2, 3].contains(&bytes[32]);
            assert!(bytes[..4] != [0, 0, 2, 0xea] || is_ours, "planted: {}", bytes[32]);
        });
        assert!(failure.expect("it must be found").contains("planted"));
    }

    #[test]
    fn a_volume_that_changes_under_a_reader_is_found() {
        let failure = found(|count, bytes| bytes[bytes.len() / 2] = count as u8);
        assert!(failure.expect("it must be found").contains("read twice"));
    }

    #[test]
    fn recovery_that_believes_records_without_checksum_is_found() {
        let run = |input: &[u8]| {
            crate::fuzz::journal_reader::run(input, &journal::RecoverOptions::default())
        };
        let find = || first_failure(inputs(Target::JournalReader, 2000, RNG_SEED), run);
        let failure = fault::with(journal::Fault::ChecksumIgnored, find);
        println!("{:.300}", failure.expect("it must be found"));
    }
}
