//! The example of `docs/how-to/rust.md` runs, and leaves its records in the log.

#[path = "../../examples/append.rs"]
#[allow(dead_code)]
mod append;

use onejournal::{Log, Options};

#[test]
fn the_example_appends_two_records() {
    let test_dir = tempfile::tempdir().expect("directory");
    append::append_and_read(test_dir.path()).expect("the example");
    let log = Log::open(test_dir.path(), &Options::default()).expect("the log");
    let stream = log.existing_stream("events").expect("streams").expect("its stream");
    let mut reader = stream.read_from(stream.head()).expect("a reader");
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().expect("a record") {
        found.push(record.payload);
    }
    assert_eq!(found, [b"first".to_vec(), b"second".to_vec()]);
    drop((reader, stream));
    log.close().expect("closed, and its shared memory is gone");
}

#[test]
fn regression_the_crate_log_can_be_used_beside_it() {
    let test_dir = tempfile::tempdir().expect("directory");
    let journal = Log::open(test_dir.path(), &Options::default()).expect("the log");
    log::info!("opened {}", journal.uuid());
    let level: log::LevelFilter = log::max_level();
    assert_eq!(level, log::LevelFilter::Off, "the library sets no logger");
    journal.close().expect("closed");
}
