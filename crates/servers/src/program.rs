//! Child processes, each with a time limit. Their output is kept, and shown if they fail.
//!
//! [`Program::run`] waits for the end. [`Program::start`] returns a [`Child`] to talk to, line by
//! line, and [`Program::serve`] a server. A child is ended when it is dropped, also by a panic.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::pidfd_open;
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, kill_process, kill_process_group};

use crate::notices::Notices;

/// The signals of most servers, for [`Program::serve`].
pub const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::KILL];
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// The interval at which waits call [`Host::check`].
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A killed PostgreSQL takes up to 5 s to end its processes.
const GRACE: Duration = Duration::from_secs(10);
const OUTPUT_SHOWN_BYTES: usize = 8000;

/// Who starts programs.
pub trait Host: Sized {
    /// Its errors.
    type Error: From<String>;

    /// Starts a process. If the process leads a process group, the group is ended with it.
    fn spawn(command: &mut Command) -> io::Result<process::Child>;

    /// An error ends a wait.
    fn check() -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A program to run.
pub struct Program<H> {
    command: Command,
    time_limit: Duration,
    is_interruptible: bool,
    host: PhantomData<H>,
}

impl<H: Host> Program<H> {
    /// A program without arguments.
    pub fn new(name: impl AsRef<OsStr>) -> Self {
        Program::of(Command::new(name))
    }

    /// A command.
    pub fn of(command: Command) -> Self {
        Program { command, time_limit: TIME_LIMIT, is_interruptible: true, host: PhantomData }
    }

    /// A copy of the command.
    pub fn copy(&self) -> Self {
        let mut command = Command::new(self.command.get_program());
        command.args(self.command.get_args());
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
        Program { time_limit, is_interruptible, ..Program::of(command) }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it in `dir`.
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// How long it may run, or how long a [`Child`] may take for an answer. 300 s if not set.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// [`Host::check`] does not end it. For cleaning up.
    pub fn uninterrupted(mut self) -> Self {
        self.is_interruptible = false;
        self
    }

    /// Runs it to its end, which must be a success. Returns its standard output.
    pub fn run(mut self) -> Result<String, H::Error> {
        let (output, errors) = (memory_file()?, memory_file()?);
        self.command.stdin(Stdio::null()).stdout(clone(&output)?).stderr(clone(&errors)?);
        let mut child = self.spawn(errors)?;
        let waited = child.wait(child.time_limit, self.is_interruptible)?;
        child.is_over = waited.is_some();
        let how = match waited {
            Some(status) if status.success() => return Ok(text(&output)),
            Some(status) => format!("failed ({status})"),
            None => took_too_long(child.time_limit),
        };
        let both = [text(&child.errors), text(&output)].concat();
        Err(failed(&child.shown, &how, &shortened(both)).into())
    }

    /// Starts it with pipes on standard input and output.
    pub fn start(mut self) -> Result<Child<H>, H::Error> {
        let errors = memory_file()?;
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(clone(&errors)?);
        let mut child = self.spawn(errors)?;
        child.input = child.process.stdin.take();
        let output = child.process.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        child.lines = lines;
        // Ends with the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(child)
    }

    /// Starts a server, and returns when it has notified that it is ready. It has failed, but may
    /// run on, when it has said one of `failures`. The first of `signals` stops it in order; the
    /// second kills it.
    pub fn serve(mut self, signals: [Signal; 2], failures: &[&str]) -> Result<Child<H>, H::Error> {
        let log = memory_file()?;
        self.command.stdin(Stdio::null()).stdout(clone(&log)?).stderr(clone(&log)?);
        let notices = Notices::new()?;
        notices.apply(&mut self.command);
        let mut child = self.spawn(log)?;
        child.signals = signals;
        let has_said = |failure: &&str| text(&child.errors).contains(failure);
        let has_failed = || H::check().is_err() || failures.iter().any(has_said);
        let ready = notices.wait(&mut child.process, has_failed);
        H::check()?;
        ready.map_err(|how| child.failed(&how))?;
        Ok(child)
    }

    fn spawn(&mut self, errors: File) -> Result<Child<H>, H::Error> {
        let shown = self.shown();
        let process = H::spawn(&mut self.command).map_err(|error| format!("{shown}: {error}"))?;
        Ok(Child {
            process,
            shown,
            input: None,
            lines: channel().1,
            errors,
            time_limit: self.time_limit,
            signals: [Signal::TERM, Signal::TERM],
            is_over: false,
            host: PhantomData,
        })
    }

    fn shown(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }
}

/// A running process. It is ended when dropped.
pub struct Child<H: Host> {
    process: process::Child,
    shown: String,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What it prints as errors; of a server, all that it prints.
    errors: File,
    time_limit: Duration,
    signals: [Signal; 2],
    is_over: bool,
    host: PhantomData<H>,
}

impl<H: Host> Child<H> {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) -> Result<(), H::Error> {
        let sent = match &mut self.input {
            Some(input) => input.write_all(format!("{line}\n").as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        // A child that ended says more than a broken pipe.
        sent.map_err(|source| match self.read_line() {
            Err(ended) => ended,
            Ok(_) => format!("{}: {source}", self.shown).into(),
        })
    }

    /// The next line that it prints.
    pub fn read_line(&mut self) -> Result<String, H::Error> {
        let deadline = Instant::now() + self.time_limit;
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => H::check()?,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(&took_too_long(self.time_limit)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let how = match self.wait(GRACE, false)? {
                        Some(status) => format!("ended ({status})"),
                        None => "closed its output".to_owned(),
                    };
                    return Err(self.failed(&how));
                }
            }
        }
    }

    /// Reads the line `ready`, with which clients and servers say that they have begun.
    pub fn wait_until_ready(&mut self) -> Result<(), H::Error> {
        match self.read_line()?.as_str() {
            "ready" => Ok(()),
            line => Err(self.failed(&format!("said `{line}` in place of `ready`"))),
        }
    }

    /// Sends a line and reads the answer.
    pub fn ask(&mut self, line: &str) -> Result<String, H::Error> {
        self.send(line)?;
        self.read_line()
    }

    /// Closes its input and waits for a successful end. Returns the lines that it still printed.
    pub fn finish(mut self) -> Result<Vec<String>, H::Error> {
        drop(self.input.take());
        self.must_end(None)?;
        Ok(self.lines.iter().collect())
    }

    /// An error if it has ended already.
    pub fn must_run(&mut self) -> Result<(), H::Error> {
        match self.wait(Duration::ZERO, false)? {
            None => Ok(()),
            Some(status) => Err(self.failed(&format!("ended early ({status})"))),
        }
    }

    /// Stops it in order. It must end by the signal, or with success.
    pub fn stop(mut self) -> Result<(), H::Error> {
        let [signal, _] = self.signals;
        let sent = kill_process(Pid::from_child(&self.process), signal);
        sent.map_err(|errno| format!("{}: {errno}", self.shown))?;
        self.must_end(Some(signal.as_raw()))
    }

    /// Waits for its end by this signal, or with success.
    fn must_end(&mut self, signal: Option<i32>) -> Result<(), H::Error> {
        let Some(status) = self.wait(self.time_limit, true)? else {
            return Err(self.failed(&took_too_long(self.time_limit)));
        };
        self.is_over = true;
        match status.success() || signal.is_some() && status.signal() == signal {
            true => Ok(()),
            false => Err(self.failed(&format!("failed ({status})"))),
        }
    }

    /// Its status; `None` if it still runs after `limit`.
    fn wait(
        &mut self,
        limit: Duration,
        is_interruptible: bool,
    ) -> Result<Option<ExitStatus>, H::Error> {
        let deadline = Instant::now() + limit;
        let what = |error: &dyn Display| format!("waiting for {}: {error}", self.shown);
        loop {
            if let Some(status) = self.process.try_wait().map_err(|e| what(&e))? {
                return Ok(Some(status));
            }
            if is_interruptible {
                H::check()?;
            }
            let left = deadline.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
            if left.is_zero() {
                return Ok(None);
            }
            let ended = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty());
            // Only this process can reap its children, so the child exists, if only as a zombie.
            let ended = ended.map_err(|errno| what(&errno))?;
            let timeout = Timespec::try_from(left).ok();
            // EINTR: a signal, which the next turn sees.
            let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], timeout.as_ref());
        }
    }

    fn failed(&self, how: &str) -> H::Error {
        failed(&self.shown, how, &text(&self.errors)).into()
    }
}

/// Kills it, and its group if it leads one; by SIGKILL if its own signal is not enough.
impl<H: Host> Drop for Child<H> {
    fn drop(&mut self) {
        drop(self.input.take());
        let pid = Pid::from_child(&self.process);
        for signal in [self.signals[1], Signal::KILL] {
            if self.is_over || matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            let _ = match getpgid(Some(pid)) == Ok(pid) {
                true => kill_process_group(pid, signal),
                false => kill_process(pid, signal),
            };
            self.is_over = matches!(self.wait(GRACE, false), Ok(Some(_)));
        }
        if !self.is_over {
            eprintln!("{}: process {} does not end", self.shown, self.pid());
        }
    }
}

fn failed(command: &str, how: &str, output: &str) -> String {
    let colon = if output.is_empty() { "" } else { ":\n" };
    format!("{command} {how}{colon}{}", output.trim_end())
}

fn shortened(output: String) -> String {
    match output.as_bytes().last_chunk::<OUTPUT_SHOWN_BYTES>() {
        Some(end) => format!("[...]{}", String::from_utf8_lossy(end)),
        None => output,
    }
}

fn took_too_long(limit: Duration) -> String {
    format!("took longer than {} s", limit.as_secs())
}

fn memory_file() -> Result<File, String> {
    memfd_create("output", MemfdFlags::CLOEXEC).map(File::from).map_err(|e| format!("memfd: {e}"))
}

fn clone(file: &File) -> Result<File, String> {
    file.try_clone().map_err(|error| format!("output of a child: {error}"))
}

/// Opens the file again: the child writes at the offset of `file`.
fn text(file: &File) -> String {
    let bytes = fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()));
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    enum Tests {}

    impl Host for Tests {
        type Error = String;

        fn spawn(command: &mut Command) -> io::Result<process::Child> {
            command.process_group(0).spawn()
        }
    }

    type Program = super::Program<Tests>;

    #[test]
    fn output_of_a_program_is_returned_or_shown_in_its_error() {
        let sh = |script: &str| Program::new("sh").arg("-c").arg(script);
        assert_eq!(sh("echo yes; echo no >&2").run().unwrap(), "yes\n");
        let error = sh("echo out; echo why >&2; exit 3").run().unwrap_err();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("why") && error.contains("out"), "{error}");
        let told = sh("echo $0 $VALUE").arg("zero").env("VALUE", "of a variable");
        assert_eq!(told.copy().run().unwrap(), "zero of a variable\n");
        let slow = sh("sleep 60").time_limit(Duration::from_millis(50)).run().unwrap_err();
        assert!(slow.contains("took longer"), "{slow}");
    }

    #[test]
    fn a_child_answers_line_by_line() {
        let mut child = Program::new("cat").start().unwrap();
        assert_eq!(child.ask("one").unwrap(), "one");
        child.send("two").unwrap();
        assert_eq!(child.finish().unwrap(), ["two"]);
        let mut ended = Program::new("sh").args(["-c", "echo why >&2; exit 1"]).start().unwrap();
        let error = ended.read_line().unwrap_err();
        assert!(error.contains("why") && error.contains("exit status: 1"), "{error}");
    }

    #[test]
    fn a_child_must_end_by_the_signal_it_gets() {
        let mut asleep = Program::new("sleep").arg("60").start().unwrap();
        asleep.must_run().unwrap();
        asleep.stop().unwrap();
        let script = "trap 'echo why >&2; exit 4' TERM; echo ready; while :; do sleep .01; done";
        let mut unwilling = Program::new("sh").args(["-c", script]).start().unwrap();
        assert_eq!(unwilling.read_line().unwrap(), "ready");
        let error = unwilling.stop().unwrap_err();
        assert!(error.contains("exit status: 4") && error.contains("why"), "{error}");
        let mut ended = Program::new("true").start().unwrap();
        assert!(ended.read_line().is_err());
        assert!(ended.must_run().unwrap_err().contains("ended early"));
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
