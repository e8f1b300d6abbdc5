//! Tests of the simulated NVRAM through its public interface, and the canaries of its crash model.

use std::thread;

use device::{BlockDevice, Nvram, Operation};
use fastrand::Rng;
use rustix::io::Errno;

use super::SimNvram;
use crate::{Fault, Image, SimClock, SimDevice, Survival, Traces};

const LEN_BYTES: u64 = 4096;

fn fault(operation: Operation) -> Fault {
    Fault { operation, skip_count: 0, forever: false }
}

fn read(nvram: &SimNvram, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut buf = vec![0; len_bytes];
    nvram.read(offset, &mut buf).expect("read");
    buf
}

/// A record that certifies itself: number, payload, and the sum of both as checksum.
fn record(number: u64) -> [u8; 24] {
    let payload = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = [number, payload, number.rotate_left(17) ^ payload ^ !0];
    zerocopy::transmute!(words)
}

/// The number of valid records from the start on.
fn recover(image: &Image) -> u64 {
    let bytes = image.to_bytes();
    let whole = |(record_bytes, number): &(&[u8], u64)| *record_bytes == record(*number);
    bytes.chunks(24).zip(1..).take_while(whole).count() as u64
}

/// A way in which a writer makes its records durable.
type Write = fn(&SimNvram, u64, &[u8]);

/// Whether a power cut at some event loses a record that the writer had acknowledged, or leaves a
/// record that was never written.
fn loses(write: Write) -> bool {
    let nvram = SimNvram::new(24 * 4);
    nvram.start_trace();
    for number in 1..=3 {
        write(&nvram, 24 * (number - 1), &record(number));
        nvram.mark(number);
    }
    let trace = nvram.take_trace();
    let mut cursor = trace.cursor();
    trace.cuts().any(|cut| {
        cursor.advance_to(cut);
        let acknowledged = trace.marks_before(cut).next_back().unwrap_or(0);
        let issued = (acknowledged + 1).min(3);
        cursor.crashes(1 << 10).any(|image| !(acknowledged..=issued).contains(&recover(&image)))
    })
}

#[test]
fn a_writer_that_fences_never_loses_a_record() {
    assert!(!loses(|nvram, offset, data| {
        nvram.write_durable(offset, &[&data[..5], &data[5..]]).expect("durable write");
    }));
    assert!(!loses(|nvram, offset, data| {
        nvram.store(offset, data).expect("store");
        nvram.persist().expect("persist");
    }));
}

#[test]
fn canary_a_writer_that_forgets_the_fence_loses_a_record() {
    assert!(loses(|nvram, offset, data| nvram.store(offset, data).expect("store")));
}

#[test]
fn canary_a_writer_that_fences_before_it_stores_loses_a_record() {
    assert!(loses(|nvram, offset, data| {
        nvram.persist().expect("persist");
        nvram.store(offset, data).expect("store");
    }));
}

#[test]
fn canary_a_writer_that_lets_another_thread_fence_loses_a_record() {
    assert!(loses(|nvram, offset, data| {
        nvram.store(offset, data).expect("store");
        thread::scope(|scope| scope.spawn(|| nvram.persist()).join().expect("thread"))
            .expect("persist");
    }));
}

/// A flag that is stored after its record, with one fence for both, may be there without the
/// record.
#[test]
fn canary_an_order_without_a_fence_is_no_order() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.start_trace();
    nvram.store(0, &[1; 64]).expect("the record");
    nvram.store(64, &[1]).expect("the flag");
    nvram.persist().expect("persist");
    let trace = nvram.take_trace();
    let mut cursor = trace.cursor();
    cursor.advance_to(2);
    assert_eq!(cursor.choice_count(), 9);
    let images: Vec<_> = cursor.crashes(512).map(|image| image.to_bytes()).collect();
    assert_eq!(images.len(), 512, "every subset of eight words and one byte");
    assert!(images.iter().any(|bytes| bytes[64] == 1 && bytes[..64] != [1; 64]));
    assert_eq!(cursor.crashes(511).count(), 511, "too many for all of them");
}

/// Whether a power cut of a machine with both media can leave a number at home that the journal in
/// NVRAM does not have. `log` puts the number into the journal first.
fn finds_home_ahead(log: Write) -> bool {
    let clock = SimClock::default();
    let journal = SimNvram::new(64).with_clock(&clock);
    let home = SimDevice::new(512, 512).with_clock(&clock);
    journal.start_trace();
    home.start_trace();
    for number in 1..=3 {
        log(&journal, 0, &[number; 8]);
        home.write_durable(0, &[number; 512]).expect("home");
    }
    let (journal, home) = (journal.take_trace(), home.take_trace());
    let (mut journal_at, mut home_at) = (journal.cursor(), home.cursor());
    Traces(vec![journal.clone(), home.clone()]).moments().into_iter().any(|moment| {
        journal_at.advance_to_moment(moment);
        home_at.advance_to_moment(moment);
        let homes = Survival::EXTREMES.map(|survival| home_at.crash(survival).to_bytes()[0]);
        let home = homes.into_iter().max().expect("four");
        journal_at.crashes(100).any(|image| image.to_bytes()[0] < home)
    })
}

#[test]
fn media_with_one_clock_lose_power_at_one_moment() {
    assert!(!finds_home_ahead(|nvram, offset, data| {
        nvram.write_durable(offset, &[data]).expect("durable write");
    }));
    assert!(finds_home_ahead(|nvram, offset, data| nvram.store(offset, data).expect("store")));
}

#[test]
fn a_store_in_flight_may_be_torn() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.start_trace();
    nvram.write_durable(0, &[&[1; 16]]).expect("durable write");
    let trace = nvram.take_trace();
    let is_torn = |image: Image| {
        let bytes = image.to_bytes();
        bytes[0] != bytes[8]
    };
    assert_eq!(trace.cursor().crashes(4).filter(|image| is_torn(image.clone())).count(), 2);
    assert!((0..20).any(|seed| is_torn(trace.crash(0, Survival::Random(seed)))));
    assert_eq!(trace.cursor().crash_keeping(0b10).to_bytes()[..16], [[0; 8], [1; 8]].concat());
}

#[test]
fn reads_see_stores_before_a_fence_and_crashes_do_not() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.store(13, &[5; 10]).expect("store");
    assert_eq!(read(&nvram, 12, 12), [&[0][..], &[5; 10], &[0]].concat());
    assert_eq!(nvram.crash(Survival::Nothing), Image::zeroed(LEN_BYTES));
    nvram.persist().expect("persist");
    assert_eq!(nvram.crash(Survival::Nothing), nvram.image());
    assert_eq!(nvram.event_count(), 2);
}

#[test]
fn after_everything_survived_the_trace_ends_in_what_reads_see() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.set_seed(3);
    nvram.store(0, &[1; 100]).expect("store before the trace");
    nvram.start_trace();
    let mut rng = Rng::with_seed(11);
    for n in 0..200 {
        let offset = rng.u64(..LEN_BYTES - 200);
        let data = vec![rng.u8(..); rng.usize(..200)];
        match rng.u8(..5) {
            0 => nvram.persist().expect("persist"),
            1 => nvram.write_durable(offset, &[&data, &[1]]).expect("durable write"),
            2 => {
                nvram.inject(fault(Operation::Write));
                nvram.store(offset, &data).expect_err("injected");
            }
            3 => {
                nvram.inject(fault(Operation::Flush));
                nvram.persist().expect_err("injected");
            }
            _ => nvram.store(offset, &data).expect("store"),
        }
        nvram.flip_bit(rng.u64(..LEN_BYTES), rng.u8(..8));
        nvram.mark(n);
    }
    let trace = nvram.take_trace();
    let end = trace.events.len();
    assert_eq!(trace.crash(end, Survival::Everything), nvram.image());
    for survival in Survival::EXTREMES {
        assert_eq!(trace.crash(end, survival), nvram.crash(survival));
    }
    for seed in 0..20 {
        let crash = || trace.crash(end / 2, Survival::Random(seed));
        assert_eq!(crash(), crash());
    }
    assert_eq!(trace.marks_before(end).count(), 200);
}

#[test]
fn a_fence_that_failed_leaves_everything_as_uncertain_as_before() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.inject(fault(Operation::Flush));
    nvram.write_durable(0, &[&[1; 8]]).expect_err("injected");
    assert_eq!(nvram.crash(Survival::Nothing), Image::zeroed(LEN_BYTES));
    assert_eq!(nvram.crash(Survival::Issued), nvram.image());
}

#[test]
fn poisoned_lines_cannot_be_read_and_others_can() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.poison(70);
    let error = nvram.read(0, &mut [0; 65]).expect_err("poison");
    assert_eq!(Errno::from_io_error(&error.source), Some(Errno::IO));
    nvram.read(127, &mut [0]).expect_err("poison");
    read(&nvram, 0, 64);
    read(&nvram, 128, 64);
    read(&nvram, 64, 0);
    nvram.store(64, &[1; 64]).expect("a store does not see it");
    nvram.read(64, &mut [0]).expect_err("poison");
    nvram.clear_faults();
    assert_eq!(read(&nvram, 64, 1), [1]);
}

#[test]
fn a_flipped_bit_is_read_and_survives() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.store(9, &[0xff]).expect("store");
    nvram.flip_bit(9, 7);
    assert_eq!(read(&nvram, 9, 1), [0x7f]);
    assert_eq!(nvram.crash(Survival::Nothing).to_bytes()[9], 0x80);
    assert_eq!(nvram.crash(Survival::Issued).to_bytes()[9], 0x7f);
}

#[test]
fn spans_outside_are_refused_and_count_as_nothing() {
    let nvram = SimNvram::new(LEN_BYTES);
    nvram.store(LEN_BYTES, &[0]).expect_err("outside");
    nvram.write_durable(LEN_BYTES - 1, &[&[0], &[0]]).expect_err("outside");
    nvram.read(u64::MAX, &mut [0; 2]).expect_err("outside");
    assert_eq!(nvram.event_count(), 0);
}
