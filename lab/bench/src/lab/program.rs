//! Child processes. Each is started in a process group of its own, so that Ctrl-C reaches only this
//! program, and with a time limit. Its output is kept, and shown if it fails.
//!
//! [`Program::run`] waits for the end. [`Program::start`] returns a [`Child`] to talk to, line by
//! line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::interrupt;
use crate::error::{Error, Result};

/// A variable in the environment of every child and its children: the scratch folder of the run
/// that they belong to.
pub const MARK: &str = "ONEJOURNAL_BENCH_SCRATCH";

static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// Marks all children from here on.
pub fn mark(scratch: &Path) {
    SCRATCH.get_or_init(|| scratch.to_owned());
}

const TIME_LIMIT: Duration = Duration::from_secs(300);
/// The interval at which waits check for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_secs(5);
const OUTPUT_SHOWN_BYTES: usize = 8000;

/// A program to run.
pub struct Program {
    command: Command,
    time_limit: Duration,
    is_interruptible: bool,
}

impl Program {
    /// `name` is looked up in PATH, `/usr/sbin` and `/sbin`.
    pub fn new(name: impl AsRef<OsStr>) -> Program {
        let mut command = Command::new(name);
        command.env("PATH", search_path()).process_group(0);
        if let Some(scratch) = SCRATCH.get() {
            command.env(MARK, scratch);
        }
        Program { command, time_limit: TIME_LIMIT, is_interruptible: true }
    }

    /// A copy of the command.
    pub fn copy(&self) -> Program {
        let mut command = Command::new(self.command.get_program());
        command.args(self.command.get_args()).process_group(0);
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = self.command.get_current_dir() {
            command.current_dir(dir);
        }
        let (time_limit, is_interruptible) = (self.time_limit, self.is_interruptible);
        Program { command, time_limit, is_interruptible }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Program {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Program {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// Runs it in `dir`.
    pub fn current_dir(mut self, dir: &Path) -> Program {
        self.command.current_dir(dir);
        self
    }

    /// How long it may run, or how long a [`Child`] may take for an answer. 300 s if not set.
    pub fn time_limit(mut self, limit: Duration) -> Program {
        self.time_limit = limit;
        self
    }

    /// A signal to this program does not end it. For cleaning up.
    pub fn uninterrupted(mut self) -> Program {
        self.is_interruptible = false;
        self
    }

    /// Runs it to its end, which must be a success. Returns its standard output.
    pub fn run(mut self) -> Result<String> {
        let (output, errors) = (memory_file()?, memory_file()?);
        let shown = self.shown();
        self.command.stdin(Stdio::null()).stdout(clone(&output)?).stderr(clone(&errors)?);
        let mut child = self.command.spawn().map_err(Error::io(&shown))?;
        let deadline = Instant::now() + self.time_limit;
        let waited = wait(&mut child, deadline, self.is_interruptible);
        let both = || [text(&errors), text(&output)].concat();
        match waited {
            Err(error) => {
                end_group(&mut child);
                Err(error)
            }
            Ok(None) => {
                end_group(&mut child);
                Err(failed(shown, took_too_long(self.time_limit), both()))
            }
            Ok(Some(status)) if status.success() => Ok(text(&output)),
            Ok(Some(status)) => Err(failed(shown, format!("failed ({status})"), both())),
        }
    }

    /// Starts it with pipes on standard input and output.
    pub fn start(mut self) -> Result<Child> {
        let errors = memory_file()?;
        let shown = self.shown();
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(clone(&errors)?);
        let mut child = self.command.spawn().map_err(Error::io(&shown))?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        // Ends with the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let time_limit = self.time_limit;
        Ok(Child { child, shown, input, lines, errors, time_limit, is_over: false })
    }

    fn shown(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }
}

/// Whether a program is installed.
pub fn is_installed(name: &str) -> bool {
    std::env::split_paths(&search_path()).any(|dir| dir.join(name).is_file())
}

fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// A running process. It is ended when dropped.
pub struct Child {
    child: std::process::Child,
    shown: String,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: File,
    time_limit: Duration,
    is_over: bool,
}

impl Child {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let sent = match &mut self.input {
            Some(input) => input.write_all(format!("{line}\n").as_bytes()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        // A child that ended says more than a broken pipe.
        sent.map_err(|source| match self.read_line() {
            Err(ended) => ended,
            Ok(_) => Error::Io { what: self.shown.clone(), source },
        })
    }

    /// The next line that it prints.
    pub fn read_line(&mut self) -> Result<String> {
        let deadline = Instant::now() + self.time_limit;
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => interrupt::check()?,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(took_too_long(self.time_limit)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let how = match wait(&mut self.child, Instant::now() + GRACE, false)? {
                        Some(status) => format!("ended ({status})"),
                        None => "closed its output".to_owned(),
                    };
                    return Err(self.failed(how));
                }
            }
        }
    }

    /// Reads the line `ready`, with which clients and servers say that they have begun.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        match self.read_line()?.as_str() {
            "ready" => Ok(()),
            line => Err(self.failed(format!("said `{line}` in place of `ready`"))),
        }
    }

    /// Sends a line and reads the answer.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.read_line()
    }

    /// Closes its input and waits for a successful end. Returns the lines that it still printed.
    pub fn finish(mut self) -> Result<Vec<String>> {
        drop(self.input.take());
        let deadline = Instant::now() + self.time_limit;
        let Some(status) = wait(&mut self.child, deadline, true)? else {
            return Err(self.failed(took_too_long(self.time_limit)));
        };
        self.is_over = true;
        if !status.success() {
            return Err(self.failed(format!("failed ({status})")));
        }
        Ok(self.lines.iter().collect())
    }

    /// An error if it has ended already.
    pub fn must_run(&mut self) -> Result<()> {
        match wait(&mut self.child, Instant::now(), false)? {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("ended early ({status})"))),
        }
    }

    /// Sends this signal to it, but not to its group. It must end by the signal, or with success.
    pub fn end_by(mut self, signal: Signal) -> Result<()> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|errno| Error::Io { what: self.shown.clone(), source: errno.into() })?;
        let Some(status) = wait(&mut self.child, Instant::now() + self.time_limit, true)? else {
            return Err(self.failed(took_too_long(self.time_limit)));
        };
        self.is_over = true;
        if status.success() || status.signal() == Some(signal.as_raw()) {
            return Ok(());
        }
        Err(self.failed(format!("failed ({status})")))
    }

    /// Sends SIGTERM and waits for the end, whatever its exit status.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if !self.is_over {
            self.is_over = true;
            drop(self.input.take());
            end_group(&mut self.child);
        }
    }

    fn failed(&self, how: String) -> Error {
        failed(self.shown.clone(), how, text(&self.errors))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Its status; `None` if it still runs at the deadline.
fn wait(
    child: &mut std::process::Child,
    deadline: Instant,
    is_interruptible: bool,
) -> Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait().map_err(Error::io("wait"))? {
        return Ok(Some(status));
    }
    let what = || format!("waiting for process {}", child.id());
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .map_err(|errno| Error::Io { what: what(), source: errno.into() });
    // Only this process can reap its children, so the child exists, if only as a zombie.
    let ended = ended?;
    loop {
        if let Some(status) = child.try_wait().map_err(Error::io("wait"))? {
            return Ok(Some(status));
        }
        if is_interruptible {
            interrupt::check()?;
        }
        let left = deadline.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
        if left.is_zero() {
            return Ok(None);
        }
        let timeout = Timespec::try_from(left).ok();
        // EINTR: a signal, which the next turn sees.
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], timeout.as_ref());
    }
}

/// Sends SIGTERM to the group, and SIGKILL if that is not enough.
fn end_group(child: &mut std::process::Child) {
    for signal in [Signal::TERM, Signal::KILL] {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = kill_process_group(Pid::from_child(child), signal);
        if matches!(wait(child, Instant::now() + GRACE, false), Ok(Some(_))) {
            return;
        }
    }
    eprintln!("onejournal-bench: process {} does not end", child.id());
}

fn failed(command: String, how: String, mut output: String) -> Error {
    if output.len() > OUTPUT_SHOWN_BYTES {
        let end = &output.as_bytes()[output.len() - OUTPUT_SHOWN_BYTES..];
        output = format!("[...]{}", String::from_utf8_lossy(end));
    }
    if !output.is_empty() {
        output.insert_str(0, ":\n");
    }
    Error::Program { command, how, output: output.trim_end().to_owned() }
}

fn took_too_long(limit: Duration) -> String {
    format!("took longer than {} s", limit.as_secs())
}

fn memory_file() -> Result<File> {
    let file = memfd_create("output", MemfdFlags::CLOEXEC);
    Ok(file.map_err(|errno| Error::Io { what: "memfd".into(), source: errno.into() })?.into())
}

fn clone(file: &File) -> Result<File> {
    file.try_clone().map_err(Error::io("standard output of a child"))
}

fn text(mut file: &File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_program_is_returned_or_shown_in_its_error() {
        let sh = |script: &str| Program::new("sh").arg("-c").arg(script);
        assert_eq!(sh("echo yes; echo no >&2").run().unwrap(), "yes\n");
        let error = sh("echo out; echo why >&2; exit 3").run().unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("why") && error.contains("out"), "{error}");
        let told = sh("echo $0 $VALUE").arg("zero").env("VALUE", "of a variable");
        assert_eq!(told.copy().run().unwrap(), "zero of a variable\n");
        let slow = sh("sleep 60").time_limit(Duration::from_millis(50)).run().unwrap_err();
        assert!(slow.to_string().contains("took longer"), "{slow}");
    }

    #[test]
    fn a_child_answers_line_by_line() {
        let mut child = Program::new("cat").start().unwrap();
        assert_eq!(child.ask("one").unwrap(), "one");
        child.send("two").unwrap();
        assert_eq!(child.finish().unwrap(), ["two"]);
        let mut ended = Program::new("sh").args(["-c", "echo why >&2; exit 1"]).start().unwrap();
        let error = ended.read_line().unwrap_err().to_string();
        assert!(error.contains("why") && error.contains("exit status: 1"), "{error}");
    }

    #[test]
    fn a_child_must_end_by_the_signal_it_gets() {
        let mut asleep = Program::new("sleep").arg("60").start().unwrap();
        asleep.must_run().unwrap();
        asleep.end_by(Signal::TERM).unwrap();
        let script = "trap 'echo why >&2; exit 4' TERM; echo ready; while :; do sleep .01; done";
        let mut unwilling = Program::new("sh").args(["-c", script]).start().unwrap();
        assert_eq!(unwilling.read_line().unwrap(), "ready");
        let error = unwilling.end_by(Signal::TERM).unwrap_err().to_string();
        assert!(error.contains("exit status: 4") && error.contains("why"), "{error}");
        let mut ended = Program::new("true").start().unwrap();
        assert!(ended.read_line().is_err());
        assert!(ended.must_run().unwrap_err().to_string().contains("ended early"));
    }

    #[test]
    fn a_child_that_is_dropped_ends_with_its_own_children() {
        let mut child =
            Program::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).start().unwrap();
        let grandchild = child.read_line().unwrap().parse().unwrap();
        let ended = pidfd_open(Pid::from_raw(grandchild).unwrap(), PidfdFlags::empty()).unwrap();
        drop(child);
        // It was told to end with its group; the kernel does so when it next runs.
        let limit = Timespec { tv_sec: 120, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ready, 1, "it runs on");
    }
}
