//! What the tests of a service share: its directories, a restart of the machine, records.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ops::Deref;
use std::time::Duration;

use device::Durability;
use onejournal::{LogError, Options, PAYLOAD_BYTES_MAX, Stream};
use onejournal_testing::ServiceDirectories;

/// The directories of a service, with its lanes in memory or in what stands for NVRAM.
pub struct TestDirectory {
    directories: ServiceDirectories,
    pub is_nvram: bool,
}

impl TestDirectory {
    pub fn new(is_nvram: bool) -> TestDirectory {
        TestDirectory { directories: ServiceDirectories::new(), is_nvram }
    }

    pub fn options(&self) -> Options {
        Options {
            nvram: self.is_nvram.then(|| self.nvram()),
            durability: self.is_nvram.then_some(Durability::Process),
            pool_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            group_bytes: 1 << 20,
            memory: self.memory.path().to_owned(),
            // No disk is slower; who finds the pool full waits for as long.
            full_wait: Duration::from_secs(120),
            ..Options::default()
        }
    }
}

impl Deref for TestDirectory {
    type Target = ServiceDirectories;

    fn deref(&self) -> &ServiceDirectories {
        &self.directories
    }
}

pub fn payload(number: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|index| (number as usize * 31 + index) as u8).collect()
}

pub fn records(stream: &Stream) -> Vec<Vec<u8>> {
    let reader = stream.read_from(stream.head()).expect("reader");
    reader.map(|record| record.expect("record").payload).collect()
}

/// Appends 300 records of many sizes, each with a sync, and adds them to `expected`.
pub fn append_synced(stream: &Stream, expected: &mut Vec<Vec<u8>>) {
    for number in 0..300 {
        let bytes = payload(number, 1 + (number as usize * 37) % 3000);
        let lsn = stream.append(&bytes).expect("append");
        stream.sync(lsn).expect("sync");
        expected.push(bytes);
    }
}

const SIZES: [usize; 11] = [1, 2, 3, 4, 5, 100, 4096, 131_071, 131_072, 1 << 20, PAYLOAD_BYTES_MAX];

/// Appends records of the smallest size to the largest, with syncs. Neither smaller nor larger ones
/// are taken.
pub fn append_every_size(stream: &Stream) {
    for (number, len_bytes) in SIZES.into_iter().enumerate() {
        let lsn = stream.append(&payload(number as u64, len_bytes)).expect("append");
        stream.sync(lsn).expect("sync");
    }
    let error = stream.append(&[]).expect_err("no such record");
    assert!(matches!(error, LogError::Usage(_)), "{error}");
    let error = stream.append(&vec![0; PAYLOAD_BYTES_MAX + 1]).expect_err("no such record");
    assert!(matches!(error, LogError::TooLarge { .. }), "{error}");
}

/// The stream holds what [`append_every_size`] has appended.
pub fn check_every_size(stream: &Stream) {
    let found = records(stream);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), SIZES);
    for (number, bytes) in found.iter().enumerate() {
        assert!(*bytes == payload(number as u64, bytes.len()), "record {number}");
    }
}

/// Runs on ordinary memory and on what stands for NVRAM.
pub fn on_both(test: impl Fn(&TestDirectory)) {
    test(&TestDirectory::new(false));
    test(&TestDirectory::new(true));
}
