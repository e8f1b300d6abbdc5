//! Tests of both ways. The bytes are checked on the real processor. The lines that were not written
//! back are checked on a processor that records them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::thread;

use fastrand::Rng;
use onejournal_testing::{test_name, tier};

use super::super::processor::Native;
use super::*;

const BUFFER_BYTES: usize = 16 * LINE_BYTES;

#[repr(align(64))]
struct Buffer([u8; BUFFER_BYTES]);

/// A processor that knows which lines have not been written back.
#[derive(Default)]
struct Bookkeeper {
    dirty: RefCell<BTreeSet<usize>>,
    /// Lines that were written back or streamed, once for each time.
    written: RefCell<Vec<usize>>,
    fence_count: RefCell<usize>,
}

impl Bookkeeper {
    /// Nothing may be stored to a line that is already being written back: it would be written
    /// twice.
    fn touch(&self, to: *mut u8, len_bytes: usize) {
        let lines = to.addr() / LINE_BYTES..(to.addr() + len_bytes).div_ceil(LINE_BYTES);
        for line in lines.filter(|_| len_bytes > 0) {
            assert!(!self.written.borrow().contains(&line), "stored to after its write-back");
            self.dirty.borrow_mut().insert(line);
        }
    }
}

impl Processor for Bookkeeper {
    unsafe fn load(&self, from: *const u8, buf: &mut [u8]) {
        // SAFETY: as the caller vouches.
        unsafe { Native::detect().load(from, buf) }
    }

    unsafe fn store(&self, to: *mut u8, data: &[u8]) {
        self.touch(to, data.len());
        // SAFETY: as the caller vouches.
        unsafe { Native::detect().store(to, data) }
    }

    unsafe fn write_back(&self, at: *const u8) {
        let line = at.addr() / LINE_BYTES;
        assert!(self.dirty.borrow_mut().remove(&line), "a clean line is written back");
        self.written.borrow_mut().push(line);
    }

    unsafe fn stream_line(&self, to: *mut u8, line: &[u8; LINE_BYTES]) {
        assert_eq!(to.addr() % LINE_BYTES, 0);
        self.touch(to, LINE_BYTES);
        // SAFETY: as the caller vouches; `to` is mapped.
        unsafe {
            Native::detect().store(to, line);
            self.write_back(to);
        }
    }

    fn fence(&self) {
        assert!(self.dirty.borrow().is_empty(), "a fence with lines that stay behind");
        *self.fence_count.borrow_mut() += 1;
    }
}

/// `data` cut into up to five pieces, some of them empty.
fn cut<'a>(data: &'a [u8], rng: &mut Rng) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = (0..rng.usize(..5)).map(|_| rng.usize(..=data.len())).collect();
    cuts.extend([0, data.len()]);
    cuts.sort();
    cuts.windows(2).map(|pair| &data[pair[0]..pair[1]]).collect()
}

/// Stores one span in one way on `processor`, and checks the bytes and their neighbours.
fn check(processor: &impl Processor, streamed: bool, start: usize, pieces: &[&[u8]]) {
    let data = pieces.concat();
    let mut buffer = Buffer([0xee; BUFFER_BYTES]);
    let to = buffer.0[start..start + data.len()].as_mut_ptr();
    // SAFETY: the span is in the buffer, of which no reference is used meanwhile.
    unsafe {
        if streamed {
            stream(processor, to, pieces);
        } else {
            store_cached(processor, to, pieces);
            processor.fence();
        }
    }
    let mut expected = [0xee; BUFFER_BYTES];
    expected[start..start + data.len()].copy_from_slice(&data);
    assert!(buffer.0 == expected, "{} bytes at {start}, streamed: {streamed}", data.len());
    let mut found = vec![0; data.len()];
    // SAFETY: as above.
    unsafe { processor.load(buffer.0[start..].as_ptr(), &mut found) }
    assert!(found == data);
}

#[test]
fn exactly_the_bytes_asked_for_are_stored() {
    let native = Native::detect();
    let data: Vec<u8> = (0..3 * LINE_BYTES).map(|i| i as u8).collect();
    for start in 0..LINE_BYTES + 1 {
        for len_bytes in 0..data.len() {
            check(&native, false, start, &[&data[..len_bytes]]);
            check(&native, true, start, &[&data[..len_bytes]]);
        }
    }
}

#[test]
fn any_pieces_are_stored_one_behind_the_other() {
    let native = Native::detect();
    let mut rng = Rng::with_seed(tier::seed_of(test_name!()));
    for _ in 0..tier::count(5000) {
        let start = rng.usize(..BUFFER_BYTES);
        let data: Vec<u8> = (0..rng.usize(..=BUFFER_BYTES - start)).map(|_| rng.u8(..)).collect();
        let pieces = cut(&data, &mut rng);
        check(&native, false, start, &pieces);
        check(&native, true, start, &pieces);
    }
}

#[test]
fn each_line_is_written_back_once_before_the_one_fence() {
    let mut rng = Rng::with_seed(tier::seed_of(test_name!()));
    for _ in 0..tier::count(5000) {
        let start = rng.usize(..BUFFER_BYTES);
        let data = vec![1; rng.usize(..=BUFFER_BYTES - start)];
        let pieces = cut(&data, &mut rng);
        for streamed in [false, true] {
            let bookkeeper = Bookkeeper::default();
            check(&bookkeeper, streamed, start, &pieces);
            assert_eq!(*bookkeeper.fence_count.borrow(), 1);
            let lines = crate::line_count(start as u64, data.len());
            assert_eq!(bookkeeper.written.borrow().len() as u64, lines);
        }
    }
}

/// If a store read, changed and wrote whole words or lines, it would overwrite the bytes of another
/// thread.
#[test]
fn threads_that_share_a_line_do_not_disturb_each_other() {
    let buffer = Box::leak(Box::new(Buffer([0; BUFFER_BYTES])));
    let address = buffer.0.as_mut_ptr().expose_provenance();
    let write = move |start: usize, len_bytes: usize| {
        let native = Native::detect();
        for round in 0..20_000 {
            let data = vec![round as u8; len_bytes];
            let mut found = vec![0; len_bytes];
            let at = std::ptr::with_exposed_provenance_mut::<u8>(address + start);
            // SAFETY: the leaked buffer is only used through these pointers.
            unsafe {
                match round % 2 {
                    0 => stream(&native, at, &[&data]),
                    _ => store_cached(&native, at, &[&data]),
                }
                native.load(at, &mut found);
            }
            assert!(found == data, "round {round}: {len_bytes} bytes at {start}");
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || write(3, 10));
        scope.spawn(move || write(13, 120));
        scope.spawn(move || write(133, 1));
    });
}
