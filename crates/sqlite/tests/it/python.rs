//! The Python package's own tests, with the library of this build.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::library;

/// A Python whose sqlite3 can load extensions; many are built without.
fn python() -> Option<&'static str> {
    let can_load = "import sqlite3; sqlite3.Connection.enable_load_extension";
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", can_load]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn the_packages_tests_pass() {
    onejournal_testing::own_process!();
    let Some(python) = python() else {
        eprintln!("skipped: there is no Python whose sqlite3 can load extensions");
        return;
    };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/python");
    let scratch = tempfile::tempdir().expect("directory");
    let output = Command::new(python)
        .args(["-B", "-m", "unittest", "discover", "--verbose", "--start-directory"])
        .arg(package.join("tests"))
        .env("ONEJOURNAL_LIBRARY", library())
        .env("PYTHONPATH", &package)
        .env("TMPDIR", scratch.path())
        .env_remove("ONEJOURNAL_LOG")
        .output()
        .expect("Python");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    // Without a test file, it succeeds too.
    assert!(report.contains("test_a_database_stays_an_ordinary_one"), "{report}");
}
