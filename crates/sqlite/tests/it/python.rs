//! The Python package's own tests, with the library of this build.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::library;
use onejournal_testing::{has_module, module_paths, python_with_extensions};

/// Runs the tests of one file, which has the test `expected`.
fn run_tests(file: &str, expected: &str) {
    let Some(python) = python_with_extensions() else { return };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/python");
    let scratch = tempfile::tempdir().expect("directory");
    let [(_, modules), ..] = module_paths();
    let mut paths = package.clone().into_os_string();
    paths.push(":");
    paths.push(modules);
    let output = Command::new(python)
        .args(["-B", "-m", "unittest", "discover", "--verbose", "--pattern", file])
        .arg("--start-directory")
        .arg(package.join("tests"))
        .env("ONEJOURNAL_LIBRARY", library())
        .env("PYTHONPATH", paths)
        .env("TMPDIR", scratch.path())
        .env_remove("ONEJOURNAL_LOG")
        .output()
        .expect("Python");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    // Without a test file, it succeeds too.
    assert!(report.contains(expected), "{report}");
}

#[test]
fn the_packages_tests_pass() {
    onejournal_testing::own_process!();
    run_tests("test_onejournal.py", "test_a_database_stays_an_ordinary_one");
}

#[test]
fn the_tests_of_the_backend_for_django_pass() {
    onejournal_testing::own_process!();
    if has_module("python3", "django") {
        run_tests("test_django.py", "test_a_path_is_opened_with_a_log_in_wal_mode_with_full");
    }
}
