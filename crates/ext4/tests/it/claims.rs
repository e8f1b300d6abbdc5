//! Who may open a volume that another user has claimed, what opening it writes, and what a power
//! cut leaves.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Image, has, make_synced, options};
use device::{BlockDevice, MemoryDevice, Metered};
use onejournal_ext4::{
    Claim, Claimant, Error, Holder, InodeNo, NewNode, OpenOptions, Owner, RootVolume, Survey,
};
use onejournal_testing::{SimDevice, Survival};

/// A process of a machine, in a boot of it. Processes with even names live.
fn claimant(machine: u8, boot: u8, living: u64) -> Claimant {
    let claim = Claim {
        machine_id: [machine; 16],
        boot_id: [boot; 16],
        process: 4711,
        heartbeat_s: 0,
        living,
        claimed_s: 1_709_210_096,
        sequence: 0,
        host_name: format!("host{machine}"),
    };
    let lives = Arc::new(|name: u64| name.is_multiple_of(2));
    Claimant { claim, lives, wait: Arc::new(|_| panic!("nothing to wait for")), take_over: false }
}

fn over(claimant: Claimant) -> Claimant {
    Claimant { take_over: true, ..claimant }
}

fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    claimant: impl Into<Option<Claimant>>,
) -> onejournal_ext4::Result<RootVolume> {
    RootVolume::open(device.clone(), OpenOptions { claimant: claimant.into(), ..options() })
}

/// It is refused, also for reading only, and not written to.
#[track_caller]
fn refused(device: &Arc<MemoryDevice>, claimant: Claimant, holder: Holder, word: &str) {
    let before = device.to_bytes();
    for read_only in [false, true] {
        let claimant = Some(claimant.clone());
        let options = OpenOptions { claimant, read_only, ..options() };
        let error = RootVolume::open(device.clone(), options).err().expect("it must be refused");
        let Error::Claimed { by, may_take_over: true, .. } = error else { panic!("{error}") };
        assert_eq!(by, holder, "{error}");
        assert!(error.to_string().contains(word), "no {word:?} in {error}");
    }
    assert!(device.to_bytes() == before, "it was written to");
}

#[test]
fn a_claim_stands_against_other_machines_and_living_processes() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    make_synced(&open(&device, claimant(1, 1, 7)).unwrap(), "kept"); // not closed
    let survey = Survey::take(&(device.clone() as Arc<dyn BlockDevice>), None).unwrap();
    assert!(survey.claimed_by.unwrap().contains("4711 of machine host1"));
    refused(
        &device,
        claimant(2, 2, 9),
        Holder::OtherMachine,
        "process 4711 of machine host1 (01010101), since 2024-02-29",
    );
    for next in [
        claimant(1, 1, 9),       // the same boot: its process is gone
        claimant(1, 2, 9),       // an earlier boot
        over(claimant(2, 2, 9)), // another machine
    ] {
        let copy = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
        let volume = open(&copy, next).unwrap();
        assert!(has(&volume, "kept"));
        volume.close().unwrap();
        image.assert_clean(&copy);
        open(&copy, claimant(3, 3, 9)).unwrap().close().unwrap();
    }
    // The one who recovers it has it.
    make_synced(&open(&device, over(claimant(2, 2, 8))).unwrap(), "more");
    refused(&device, claimant(1, 1, 9), Holder::OtherMachine, "host2");
    refused(&device, claimant(2, 2, 9), Holder::ThisMachine, "process 4711 of this machine");
    // Another container.
    refused(&device, claimant(7, 2, 9), Holder::ThisMachine, "process 4711 of this machine");
    let volume = open(&device, over(claimant(2, 2, 9))).unwrap();
    assert!(has(&volume, "kept") && has(&volume, "more"));
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// A damaged claim does not say which user has the volume open.
#[test]
fn a_claim_that_cannot_be_read_is_refused() {
    let image = Image::new(&["-O", "^metadata_csum"], "64M");
    let device = image.device();
    make_synced(&open(&device, claimant(1, 1, 7)).unwrap(), "kept");
    let mut bytes = device.to_bytes();
    let at = bytes.windows(4).position(|four| four == *b"OJCL").unwrap();
    bytes[at + 8] ^= 1;
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    refused(&device, claimant(1, 1, 9), Holder::Unknown, "cannot be read");
    let volume = open(&device, over(claimant(1, 1, 9))).unwrap();
    assert!(has(&volume, "kept"));
    volume.close().unwrap();
    assert!(!device.to_bytes().windows(4).any(|four| four == *b"OJCL"), "the claim is gone");
}

/// No mount makes such a claim. Opening the volume would wait for up to 272 years.
#[test]
fn regression_a_heartbeat_that_never_comes_is_not_waited_for() {
    let image = Image::new(&["-O", "^metadata_csum"], "64M");
    let device = image.device();
    make_synced(&open(&device, claimant(1, 1, 7)).unwrap(), "kept");
    let mut bytes = device.to_bytes();
    let at = bytes.windows(4).position(|four| four == *b"OJCL").unwrap();
    for heartbeat_s in [301, u32::MAX] {
        bytes[at + 0x2C..at + 0x30].copy_from_slice(&heartbeat_s.to_be_bytes());
        let sum = crc32c::crc32c(&bytes[at + 8..at + 112]).to_be_bytes();
        bytes[at + 4..at + 8].copy_from_slice(&sum);
        let device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), 512));
        // The wait of these claimants panics.
        refused(&device, claimant(1, 2, 9), Holder::Unknown, "cannot be read");
        let volume = open(&device, over(claimant(1, 2, 9))).unwrap();
        assert!(has(&volume, "kept"));
        volume.close().unwrap();
    }
}

/// The claim costs neither a write nor a flush, at opening, in use and at closing.
#[test]
fn a_claim_is_written_with_the_marks() {
    let image = Image::new(&[], "64M");
    let run = |claimant: Option<Claimant>| {
        let device = Arc::new(Metered::new(MemoryDevice::from_bytes(image.bytes(), 512)));
        let volume = open(&device, claimant).unwrap();
        make_synced(&volume, "f");
        volume.close().unwrap();
        let counters = device.counters();
        (counters.write_count, counters.write_bytes, counters.flush_count)
    };
    assert_eq!(run(Some(claimant(1, 1, 7))), run(None));
}

/// The claimant holds the sign of life of its process.
#[test]
fn a_claimant_lasts_as_long_as_its_volume_is_open() {
    for read_only in [false, true] {
        let bytes = Image::new(&[], "64M").bytes();
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        let sign = Arc::new(());
        let (held, claimant) = (Arc::downgrade(&sign), claimant(1, 1, 2));
        let lives = Arc::new(move |_: u64| Arc::strong_count(&sign) > 0);
        let options =
            OpenOptions { claimant: Some(Claimant { lives, ..claimant }), read_only, ..options() };
        let volume = RootVolume::open(device, options).expect("open");
        assert!(held.upgrade().is_some(), "read_only: {read_only}");
        volume.close().expect("close");
        assert!(held.upgrade().is_none());
    }
}

/// Cuts the power at every event of a mount by one machine. Another machine then either opens the
/// volume without `take_over` and misses nothing, or is told who has it.
#[test]
fn at_any_moment_of_a_mount_a_volume_is_free_or_says_whose_it_is() {
    let image = Image::new(&[], "64M");
    let device = image.sim_device();
    device.start_trace();
    let volume = open(&device, claimant(1, 1, 7)).unwrap();
    make_synced(&volume, "kept");
    device.mark(1);
    volume.close().unwrap();
    let trace = device.take_trace();
    let (mut cursor, mut refused_count, mut state_count) = (trace.cursor(), 0, 0);
    for event in trace.cuts() {
        cursor.advance_to(event);
        let is_synced = trace.marks_before(event).next().is_some();
        let survivals = Survival::EXTREMES.into_iter().chain((0..3).map(Survival::Random));
        for survival in survivals {
            let left = cursor.crash(survival);
            let at = |claimant| {
                let device = Arc::new(SimDevice::from_image(left.clone(), 512));
                open(&device, claimant).map(|volume| {
                    assert!(has(&volume, "kept") >= is_synced, "event {event}, {survival:?}");
                    volume.close().unwrap();
                })
            };
            // The machine itself, after its boot, and the override: always.
            at(claimant(1, 2, 9)).unwrap();
            at(over(claimant(2, 2, 9))).unwrap();
            state_count += 1;
            match at(claimant(2, 2, 9)) {
                Ok(()) => {}
                Err(Error::Claimed { by: Holder::OtherMachine, why, .. }) => {
                    assert!(why.contains("host1"), "{why}");
                    refused_count += 1;
                }
                Err(error) => panic!("event {event}, {survival:?}: {error}"),
            }
        }
    }
    println!("{state_count} states, {refused_count} of them refused to another machine");
    assert!(refused_count > 20 && refused_count < state_count);
}

/// The same for a mount that takes over: a second cut leaves one claim or the other.
#[test]
fn a_cut_while_taking_over_leaves_one_of_both_claims() {
    let image = Image::new(&[], "64M");
    let device = image.sim_device();
    make_synced(&open(&device, claimant(1, 1, 7)).unwrap(), "kept");
    device.start_trace();
    drop(open(&device, over(claimant(2, 2, 9))).unwrap());
    let trace = device.take_trace();
    let (mut cursor, mut counts) = (trace.cursor(), [0, 0]);
    for event in trace.cuts() {
        cursor.advance_to(event);
        for survival in Survival::EXTREMES {
            let left = Arc::new(SimDevice::from_image(cursor.crash(survival), 512));
            let error = open(&left, claimant(3, 3, 9)).err().expect("a third machine").to_string();
            let whose = [1, 2].map(|machine| error.contains(&format!("host{machine}")));
            assert!(whose[0] != whose[1], "event {event}, {survival:?}: {error}");
            counts[usize::from(whose[1])] += 1;
            let owner = claimant(if whose[0] { 1 } else { 2 }, 8, 9);
            assert!(has(&open(&left, owner).unwrap(), "kept"), "event {event}, {survival:?}");
        }
    }
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

fn beating(claimant: Claimant, wait: impl Fn(Duration) + Send + Sync + 'static) -> Claimant {
    let claim = Claim { heartbeat_s: 1, ..claimant.claim };
    Claimant { claim, wait: Arc::new(wait), ..claimant }
}

/// Changes the claim on the volume as a heartbeat of its owner does.
fn beat(device: &MemoryDevice) {
    beat_times(device, 1);
}

/// As so many heartbeats do.
fn beat_times(device: &MemoryDevice, count: u8) {
    let mut bytes = device.to_bytes();
    let at = bytes.windows(4).position(|four| four == *b"OJCL").unwrap();
    bytes[at + 0x47] += count; // the last byte of its sequence
    let sum = crc32c::crc32c(&bytes[at + 8..at + 112]).to_be_bytes();
    bytes[at + 4..at + 8].copy_from_slice(&sum);
    let start = (at - 0x60) / 4096 * 4096;
    let block = &mut bytes[start..start + 4096];
    // The checksum of the superblock of the kernel's journal.
    block[0xFC..0x100].fill(0);
    let sum = (!crc32c::crc32c(&block[..1024])).to_be_bytes();
    block[0xFC..0x100].copy_from_slice(&sum);
    device.write(start as u64, block).unwrap();
}

#[test]
fn a_heart_that_beats_is_waited_for_and_no_option_gets_past_it() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let waited = Arc::new(AtomicU64::new(0));
    let count = |waited: &Arc<AtomicU64>| {
        let waited = waited.clone();
        move |time: Duration| {
            waited.fetch_add(time.as_secs(), Ordering::Relaxed);
        }
    };
    // An opening writes its claim and waits once, in case another machine does the same.
    make_synced(&open(&device, beating(claimant(1, 1, 7), count(&waited))).unwrap(), "kept");
    assert_eq!(waited.swap(0, Ordering::Relaxed), 3);
    let alive = |claimant: Claimant| {
        let (beats, waited) = (device.clone(), waited.clone());
        let wait = move |time: Duration| {
            waited.fetch_add(time.as_secs(), Ordering::Relaxed);
            beat(&beats);
        };
        Claimant { wait: Arc::new(wait), ..claimant }
    };
    for claimant in [over(claimant(2, 2, 9)), claimant(1, 2, 9)] {
        let error = open(&device, alive(claimant)).err().expect("it beats").to_string();
        assert!(error.contains("its heartbeats go on"), "{error}");
        assert_eq!(waited.swap(0, Ordering::Relaxed), 3);
    }
    // In the same boot the process is known to have ended, so the opening does not wait for it.
    let copy = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
    open(&copy, claimant(1, 1, 9)).unwrap().close().unwrap();
    // The heartbeats have stopped, but another machine still needs `take_over`.
    let still = |claimant: Claimant| Claimant { wait: Arc::new(count(&waited)), ..claimant };
    refused(&device, still(claimant(2, 2, 9)), Holder::OtherMachine, "host1");
    assert_eq!(waited.swap(0, Ordering::Relaxed), 0);
    let volume = open(&device, still(over(claimant(2, 2, 9)))).unwrap();
    assert_eq!(waited.swap(0, Ordering::Relaxed), 3);
    assert!(has(&volume, "kept"));
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn two_machines_that_open_a_volume_at_once_never_both_get_it() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let other = device.clone();
    // While the first waits, the second finds the first's claim, and waits in turn.
    let second = move |_: Duration| {
        let first = other.to_bytes();
        let error = open(
            &other,
            beating(claimant(2, 2, 9), {
                let other = other.clone();
                move |_| beat(&other)
            }),
        );
        assert!(error.err().expect("taken").to_string().contains("host1"));
        other.write(0, &first).unwrap();
    };
    let volume = open(&device, beating(claimant(1, 1, 7), second)).unwrap();
    volume.close().unwrap();
    // The second has written its claim over the first's, having looked before that was there.
    let late = device.clone();
    let overwrite = move |_: Duration| beat(&late);
    let error = open(&device, beating(claimant(1, 1, 7), overwrite)).err().expect("lost");
    assert!(error.to_string().contains("in this moment"), "{error}");
}

#[test]
fn a_volume_that_was_taken_over_is_written_no_more() {
    let image = Image::new(&[], "64M");
    let device = Arc::new(Metered::new(MemoryDevice::from_bytes(image.bytes(), 512)));
    let mine = beating(claimant(1, 1, 8), |_| {});
    let all = OpenOptions { claimant: Some(mine), background: true, ..options() };
    let volume = RootVolume::open(device.clone(), all).unwrap();
    let before = device.counters();
    let deadline = Instant::now() + Duration::from_secs(60);
    let until = |done: &dyn Fn() -> bool| {
        while !done() {
            assert!(Instant::now() < deadline, "the heart does not beat");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until(&|| device.counters().write_count >= before.write_count + 2);
    assert_eq!(device.counters().flush_count, before.flush_count, "a beat is no flush");
    // Another machine takes it over. (After one beat the claim could be the next of this machine,
    // whose heart beats while the claim is changed.)
    beat_times(device.inner(), 100);
    until(&|| volume.is_read_only());
    assert!(volume.journal().abort_reason().unwrap().contains("has taken the volume over"));
    let written = device.counters().write_count;
    let made = volume.make(InodeNo::ROOT, b"late", NewNode::Regular, 0o644, 0, Owner::default());
    assert!(made.and_then(|_| volume.sync()).is_err());
    volume.close().unwrap_err();
    assert_eq!(device.counters().write_count, written);
}
