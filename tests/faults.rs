//! Faults that tests switch on are in no release build. A program with one is compiled as a release
//! and as a test build. `scripts/check-release` looks into the product itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::run;

/// What the program does only when its fault is on.
const MARK: &str = "the fault acts";

const PROGRAM: &str = r#"
    #[derive(Clone, Copy, PartialEq)]
    pub enum Fault {
        Acts,
    }
    fault::switches!(Fault);
    fn main() {
        std::thread::spawn(carry(|| if is(Fault::Acts) { println!("the fault acts") })).join().unwrap();
        crash_point();
    }
"#;

/// Compiles the crate `fault` and the program with these options.
fn compile(dir: &Path, options: &[&str]) -> PathBuf {
    let source = dir.join("program.rs");
    std::fs::write(&source, PROGRAM).unwrap();
    let fault = concat!(env!("CARGO_MANIFEST_DIR"), "/../fault/src/lib.rs");
    let rustc = |more: &[&str]| {
        let mut command = Command::new("rustc");
        command.current_dir(dir).args(["--edition", "2024"]).args(options).args(more);
        run(&mut command).good();
    };
    rustc(&["--crate-type", "rlib", "--crate-name", "fault", fault]);
    rustc(&["--extern", "fault=libfault.rlib", source.to_str().unwrap()]);
    dir.join("program")
}

fn contains_fault(options: &[&str]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(compile(dir.path(), options)).unwrap();
    bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes())
}

#[test]
fn a_release_build_contains_no_fault_and_a_test_build_does() {
    assert!(!contains_fault(&["-C", "opt-level=3"]));
    assert!(contains_fault(&["-C", "opt-level=1", "-C", "debug-assertions=on"]));
}
