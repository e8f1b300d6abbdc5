//! Tests of the simulated device through its public interface.

use device::{BlockDevice, Operation};
use fastrand::Rng;
use rustix::io::Errno;

use super::SimDevice;
use crate::{Fault, Image, Survival};

const SIZE_BYTES: u64 = 64 << 10;

fn device() -> SimDevice {
    SimDevice::new(SIZE_BYTES, 512)
}

fn fault(operation: Operation, skip_count: u64, forever: bool) -> Fault {
    Fault { operation, skip_count, forever }
}

fn read(device: &SimDevice, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut buf = vec![0; len_bytes];
    device.read(offset, &mut buf).expect("read");
    buf
}

#[test]
fn reads_see_writes_before_a_flush_and_crashes_do_not() {
    let device = device();
    device.write(512, &[5; 512]).expect("write");
    assert_eq!(read(&device, 512, 512), [5; 512]);
    assert_eq!(device.crash(Survival::Nothing), Image::zeroed(SIZE_BYTES));
    device.flush().expect("flush");
    assert_eq!(device.crash(Survival::Nothing), device.image());
    assert_eq!(device.event_count(), 2);
}

#[test]
fn after_everything_survived_the_trace_ends_in_what_reads_see() {
    let device = device();
    device.set_seed(3);
    device.write(0, &[1; 1024]).expect("write before the trace");
    device.start_trace();
    let mut rng = Rng::with_seed(11);
    for n in 0..200 {
        let offset = 512 * rng.u64(..100);
        let data = vec![rng.u8(..); 512 * rng.usize(1..20)];
        match rng.u8(..4) {
            0 => device.flush().expect("flush"),
            1 => device.write_durable(offset, &data).expect("durable write"),
            2 => {
                device.inject(fault(Operation::Write, 0, false));
                device.write(offset, &data).expect_err("injected");
            }
            _ => device.write(offset, &data).expect("write"),
        }
        device.flip_bit(rng.u64(..SIZE_BYTES), rng.u8(..8));
        device.mark(n);
    }
    let trace = device.take_trace();
    let end = trace.events.len();
    assert_eq!(trace.crash(end, Survival::Everything), device.image());
    for survival in Survival::EXTREMES.into_iter().chain((0..10).map(Survival::Random)) {
        let Survival::Random(_) = survival else {
            assert_eq!(trace.crash(end, survival), device.crash(survival));
            continue;
        };
        assert_eq!(trace.crash(end, survival), trace.crash(end, survival));
    }
    assert_eq!(trace.marks_before(end).count(), 200);
}

#[test]
fn the_nth_operation_fails_once() {
    let device = device();
    device.inject(fault(Operation::Write, 1, false));
    device.write(0, &[1; 512]).expect("first");
    let error = device.write_durable(0, &[2; 512]).expect_err("second");
    assert_eq!(Errno::from_io_error(&error.source), Some(Errno::IO));
    device.write(0, &[3; 512]).expect("third");
    device.inject(fault(Operation::Read, 0, false));
    device.read(0, &mut [0; 512]).expect_err("injected");
    assert_eq!(read(&device, 0, 512), [3; 512]);
}

#[test]
fn operations_fail_for_ever_when_asked_to() {
    let device = device();
    device.inject(fault(Operation::Flush, 1, true));
    device.flush().expect("first");
    (0..3).for_each(|_| drop(device.flush().expect_err("injected")));
    device.write(0, &[1; 512]).expect("writes go on");
    device.clear_faults();
    device.flush().expect("faults are gone");
}

#[test]
fn a_failed_write_leaves_old_or_new_sectors_the_same_for_one_seed() {
    let after_failure = |seed| {
        let device = device();
        device.set_seed(seed);
        device.inject(fault(Operation::Write, 0, false));
        device.write_durable(0, &[1; 2048]).expect_err("injected");
        assert_eq!(device.crash(Survival::Nothing), Image::zeroed(SIZE_BYTES));
        read(&device, 0, 2048)
    };
    let mut found = Vec::new();
    for seed in 0..60 {
        let bytes = after_failure(seed);
        assert_eq!(bytes, after_failure(seed));
        assert!(bytes.chunks(512).all(|sector| sector == [0; 512] || sector == [1; 512]));
        found.push(bytes);
    }
    assert!(found.contains(&vec![0; 2048]) && found.contains(&vec![1; 2048]));
    assert!(found.iter().any(|bytes| bytes[0] != bytes[2047]));
}

#[test]
fn a_full_device_writes_nothing_beyond_its_capacity() {
    let device = device();
    device.set_capacity_bytes(1024);
    device.write(512, &[1; 512]).expect("fits");
    let error = device.write(512, &[2; 1024]).expect_err("does not fit");
    assert_eq!(Errno::from_io_error(&error.source), Some(Errno::NOSPC));
    assert_eq!(read(&device, 512, 1024), [[1; 512], [0; 512]].concat());
}

#[test]
fn a_flipped_bit_is_read() {
    let device = SimDevice::from_bytes(&[0xff; 1024], 512);
    device.flip_bit(1023, 7);
    assert_eq!(read(&device, 512, 512)[511], 0x7f);
    assert_eq!(device.crash(Survival::Nothing).to_bytes()[1023], 0x7f);
}

#[test]
fn spans_outside_are_refused_and_count_as_nothing() {
    let device = device();
    device.write(SIZE_BYTES, &[0; 512]).expect_err("outside");
    device.read(SIZE_BYTES - 512, &mut [0; 1024]).expect_err("outside");
    assert_eq!(device.event_count(), 0);
}

#[test]
fn a_sector_of_4096_bytes_is_torn_at_512() {
    let device = SimDevice::new(SIZE_BYTES, 4096);
    device.write(0, &[1; 4096]).expect("write");
    let is_torn = |seed| {
        let bytes = device.crash(Survival::Random(seed)).to_bytes();
        let pieces: Vec<_> = bytes[..4096].chunks(512).collect();
        assert!(pieces.iter().all(|piece| piece.iter().all(|byte| *byte == piece[0])));
        pieces.iter().any(|piece| piece[0] != pieces[0][0])
    };
    assert!((0..50).any(is_torn), "no crash tore the sector");
}
