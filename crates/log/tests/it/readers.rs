//! Readers beside writer, drains and truncation: each sees exactly what was appended, from its
//! position on, and never what is not durable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::Durability;
use onejournal::{Log, LogError, Lsn, Options, Reader, Stream};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<usize>),
    Sync,
    Flush,
    Release,
    /// Truncates so many parts of 16 of what there is.
    Truncate(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len_bytes = prop_oneof![8 => 8usize..300, 2 => 300usize..5000, 1 => 5000usize..120_000];
    let step = prop_oneof![
        6 => prop::collection::vec(len_bytes, 1..4).prop_map(Step::Append),
        4 => Just(Step::Sync),
        2 => Just(Step::Flush),
        1 => Just(Step::Release),
        1 => (0u64..14).prop_map(Step::Truncate),
    ];
    prop::collection::vec(step, 20..120)
}

fn payload(number: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(len_bytes, number as u8);
    bytes
}

fn write(stream: &Stream, steps: &[Step], is_nvram: bool, durable: &AtomicU64) {
    let mut ends = vec![(0, Lsn(0))];
    for step in steps {
        let number = ends.last().expect("one").0;
        match step {
            Step::Append(sizes) => {
                let payloads: Vec<Vec<u8>> =
                    (number..).zip(sizes).map(|(number, size)| payload(number, *size)).collect();
                let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                if is_nvram {
                    durable.fetch_add(payloads.len() as u64, Ordering::SeqCst);
                }
                let lsn = stream.append_batch(&slices).expect("append");
                ends.push((number + payloads.len() as u64, lsn));
            }
            Step::Sync | Step::Flush => {
                // Readers may see it as soon as this begins.
                durable.fetch_max(number, Ordering::SeqCst);
                match step {
                    Step::Sync if number > 0 => {
                        stream.sync(ends.last().expect("one").1).expect("sync");
                    }
                    _ => stream.flush().expect("flush"),
                }
            }
            Step::Release => stream.release(),
            Step::Truncate(part) => {
                let (_, lsn) = ends[ends.len() * *part as usize / 16];
                stream.truncate_before(lsn).expect("truncate");
            }
        }
    }
    durable.fetch_max(ends.last().expect("one").0, Ordering::SeqCst);
    stream.flush().expect("flush");
}

/// A reader at the head, once what is there is durable.
fn at_head(stream: &Stream) -> Reader {
    loop {
        match stream.read_from(stream.head()) {
            Ok(reader) => return reader,
            // The record was truncated, or nothing is durable that far.
            Err(LogError::Truncated { .. } | LogError::PastEnd { .. }) => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
}

/// Reads to the end; how many records the last one's number says there are. A reader that is
/// overtaken by truncation begins again at the head.
fn read(stream: &Stream, is_done: &AtomicBool, durable: &AtomicU64) -> u64 {
    let mut reader = at_head(stream);
    let (mut next, mut usn) = (None, onejournal::Usn(0));
    loop {
        // Read before the record, or the writer could be done in between.
        let is_last = is_done.load(Ordering::SeqCst);
        match reader.next_record() {
            Ok(Some(record)) => {
                let number = u64::from_le_bytes(record.payload[..8].try_into().expect("eight"));
                assert!(record.payload == payload(number, record.payload.len()), "its bytes");
                assert!(next.is_none_or(|next| next == number), "{number}, not {next:?}");
                assert!(number < durable.load(Ordering::SeqCst), "{number} is not durable");
                assert!(record.usn > usn);
                (next, usn) = (Some(number + 1), record.usn);
            }
            Ok(None) if is_last => return next.unwrap_or(0),
            Ok(None) => std::thread::yield_now(),
            Err(LogError::Truncated { .. }) => (reader, next) = (at_head(stream), None),
            Err(e) => panic!("{e}"),
        }
    }
}

fn run(steps: &[Step], is_nvram: bool) {
    let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let nvram = memory.path().join("nvram");
    std::fs::create_dir(&nvram).expect("directory");
    let root = tempfile::tempdir().expect("directory");
    let options = Options {
        nvram: is_nvram.then_some(nvram),
        durability: is_nvram.then_some(Durability::Process),
        pool_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        group_bytes: 1 << 20,
        // No disk is slower.
        full_wait: std::time::Duration::from_secs(120),
        memory: memory.path().to_owned(),
        ..Options::default()
    };
    let open = || Log::open(root.path(), &options).expect("open");
    let (writing, reading) = (open(), open());
    let (is_done, durable) = (AtomicBool::new(false), AtomicU64::new(0));
    let streams = [writing.stream("s").expect("stream"), reading.stream("s").expect("stream")];
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            streams.iter().map(|stream| scope.spawn(|| read(stream, &is_done, &durable))).collect();
        write(&streams[0], steps, is_nvram, &durable);
        is_done.store(true, Ordering::SeqCst);
        for reader in readers {
            let seen = reader.join().expect("no reader fails");
            let all = durable.load(Ordering::SeqCst);
            let is_empty = streams[0].head() == streams[0].end();
            assert!(seen == all || is_empty, "{seen} of {all}");
        }
    });
}

proptest! {
    #![proptest_config(onejournal_testing::proptest_config!(24))]

    #[test]
    fn readers_see_a_prefix(steps in steps()) {
        run(&steps, false);
    }

    #[test]
    fn readers_see_a_prefix_on_nvram(steps in steps()) {
        run(&steps, true);
    }
}
