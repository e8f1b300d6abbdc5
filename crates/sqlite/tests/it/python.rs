//! The Python package's own tests, with the library of this build.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::library;

#[test]
fn the_packages_tests_pass() {
    onejournal_testing::own_process!();
    let Some(python) = onejournal_testing::python_with_extensions() else { return };
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
