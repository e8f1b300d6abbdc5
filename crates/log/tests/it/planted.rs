//! A log whose files claim sizes that no log has. Their owner may have made them so, and a sparse
//! file takes no space: opening the log must take neither the memory nor the time.

use std::fs::{self, File};
use std::path::PathBuf;

use onejournal::{Log, Options};

use crate::common::TestDirectory;

/// A log with a stream `a`, which is closed.
fn made() -> TestDirectory {
    let test_dir = TestDirectory::new(false);
    let log = Log::open(test_dir.log(), &test_dir.options()).expect("made");
    let stream = log.stream("a").expect("stream");
    stream.append(b"record").and_then(|lsn| stream.sync(lsn)).expect("synced");
    drop(stream);
    log.close().expect("closed");
    test_dir
}

/// Makes a file of the log longer, with a hole.
fn lengthen(path: PathBuf, len_bytes: u64) {
    let file = File::options().write(true).open(path).expect("there");
    file.set_len(len_bytes).expect("sparse");
}

#[test]
fn regression_settings_that_no_log_has_are_refused() {
    for (name, most) in
        [("group_bytes", 256 << 20), ("segment_bytes", 4 << 30), ("chunk_bytes", 128 << 20_u64)]
    {
        let test_dir = made();
        let path = test_dir.log().join("service.json");
        let text = fs::read_to_string(&path).expect("settings");
        let mut settings: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        settings[name] = (most + 4096).into();
        fs::write(&path, settings.to_string()).expect("written");
        if name == "group_bytes" {
            lengthen(test_dir.log().join("group.log"), most + 4096);
        }
        let opened = Log::open(test_dir.log(), &test_dir.options());
        let why = opened.err().expect("refused").to_string();
        assert!(why.contains("settings that cannot be"), "{name}: {why}");
    }
    let test_dir = TestDirectory::new(false);
    let options = Options { group_bytes: (256 << 20) + 4096, ..test_dir.options() };
    let refused = Log::open(test_dir.log(), &options).err().expect("refused").to_string();
    assert!(refused.contains("it can have 1048576 to 268435456 bytes"), "{refused}");
}

#[test]
fn regression_a_log_file_longer_than_any_is_refused() {
    let test_dir = made();
    let path = test_dir.log().join("streams/a/0000000000000000.seg");
    let len_bytes = fs::metadata(&path).expect("there").len();
    let open = || {
        let log = Log::open(test_dir.log(), &test_dir.options())?;
        log.stream("a").map(|stream| stream.head())
    };
    lengthen(path.clone(), 70 << 20);
    let why = open().expect_err("refused").to_string();
    assert!(why.contains("no log makes it so"), "{why}");
    lengthen(path, len_bytes);
    open().expect("the log is whole");
}
