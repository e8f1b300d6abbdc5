//! The test program again, as another process: a client, a victim, or a test that needs a process
//! for itself.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, Once, PoisonError};

/// The copy of standard error gets a number that no check of low numbers meets.
const COPY_NUMBER_MIN: i32 = 100;

/// In the environment of a process that runs one test. The gate's runner sets it, too.
const ALONE: &str = "ONEJOURNAL_ALONE";

/// In the environment of a process whose output is not needed.
const SILENT: &str = "ONEJOURNAL_SILENT";

/// Closes the descriptors 0, 1 and 2, as a daemon does. Only in a process whose output is not
/// needed (`own_process!(silent)`): it prints nothing from then on but why it panics.
pub fn close_standard_descriptors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let copied = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), COPY_NUMBER_MIN);
        let copy = File::from(copied.expect("a descriptor is free"));
        let copy = Mutex::new(copy);
        std::panic::set_hook(Box::new(move |info| {
            // An error here has no other place to go.
            let _ = writeln!(copy.lock().unwrap_or_else(PoisonError::into_inner), "{info}");
        }));
    });
    let open = (0..3).filter(|number| Path::new("/proc/self/fd").join(number.to_string()).exists());
    for number in open {
        // SAFETY: no value owns these numbers. The standard library writes to them and never closes
        // them.
        unsafe { rustix::io::close(number) };
    }
}

/// The name of the test that contains the call, as the test program knows it.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        $crate::name_of(here)
    }};
}

/// Ends the calling test here if other tests share its process, and runs it in a process of its own
/// instead. For tests whose effects belong to the process: signal handlers, limits, a VFS that
/// records.
///
/// `own_process!(silent)` is for a test that closes the standard descriptors. Its process is never
/// the one that the gate's runner has started, which reads the result from the output.
#[macro_export]
macro_rules! own_process {
    () => {
        $crate::own_process!(@is_silent false)
    };
    (silent) => {
        $crate::own_process!(@is_silent true)
    };
    (@is_silent $is_silent:literal) => {
        if !$crate::is_alone($crate::test_name!(), $is_silent) {
            return;
        }
    };
}

/// For [`test_name`]: the path of `here` without the crate and without `here`.
pub fn name_of<T>(_here: T) -> &'static str {
    let path = std::any::type_name::<T>();
    let name = path.split_once("::").and_then(|(_, rest)| rest.rsplit_once("::"));
    name.expect("a function in a test in a crate").0
}

/// The words with which this program runs an ignored test of the module `module`
/// (`module_path!()`): itself, and the arguments.
pub fn again_words(module: &str, test: &str) -> Vec<OsString> {
    let module = module.split_once("::").map(|(_, inside)| format!("{inside}::"));
    let name = format!("{}{test}", module.unwrap_or_default());
    let program = std::env::current_exe().expect("this program");
    let arguments = ["--exact", &name, "--include-ignored", "--nocapture"].map(OsString::from);
    std::iter::once(program.into()).chain(arguments).collect()
}

/// The same as a command.
pub fn again(module: &str, test: &str) -> Command {
    let words = again_words(module, test);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Whether the test `name` has this process for itself, and, if it `is_silent`, its output is not
/// needed. If not, runs it in another one.
pub fn is_alone(name: &str, is_silent: bool) -> bool {
    let variable = if is_silent { SILENT } else { ALONE };
    if std::env::var_os(variable).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--include-ignored", "--nocapture"]);
    command.env(ALONE, "1").env(variable, "1");
    let output = command.output().expect("a process");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} in a process of its own: {}", output.status);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_name_and_is_found_again_by_it() {
        let name = "again::tests::a_test_knows_its_name_and_is_found_again_by_it";
        assert_eq!(test_name!(), name);
        let words = again_words(module_path!(), "another");
        assert_eq!(words[1..3], ["--exact", "again::tests::another"]);
    }

    #[test]
    fn a_test_in_its_own_process_is_alone() {
        own_process!();
        assert!(std::env::var_os(ALONE).is_some());
    }

    #[test]
    #[ignore = "a process of the test below"]
    fn fails() {
        panic!("as it should");
    }

    #[test]
    fn canary_a_failure_in_another_process_is_one_here() {
        let run = || is_alone("again::tests::fails", false);
        if std::env::var_os(ALONE).is_none() {
            std::panic::catch_unwind(run).expect_err("it fails there");
        }
        let output = again(module_path!(), "fails").output().expect("a process");
        assert!(!output.status.success());
    }
}
