//! Asks a mount, or a file on it, through a process of its own.
//!
//! A process that waits for an answer of a stopped daemon cannot be ended, and a thread that waits
//! for it keeps its process from ending. So another process asks: `onejournal ask PATH...`. It
//! prints an empty line when it has started. Then it answers each line of its input with a line of
//! JSON, about one path after the other, and remembers the names of files that it has found.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use clap::Args;
use rustix::fs::StatVfsMountFlags;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::answer::{Answer, MountState};
use super::files::{FileNames, files_of};
use super::{ANSWER_LIMIT, START_LIMIT};
use crate::counters::{Counters, cannot_read, declared_bytes, parse, read_attribute, read_raw};
use crate::error::{CliError, Result};
use crate::output::{print_line, say_json};
use crate::surroundings;
use crate::volumes::ServedVolume;

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The volume.
    Volume,
    /// The volume and its files.
    VolumeWithFiles,
    /// The file; if it is a directory, the volume. With everything that is shown beside it.
    File,
    /// The data mode of a file or directory, and what it is declared to need.
    Mode,
}

/// Asks at `path`. An error if there is no answer within [`ANSWER_LIMIT`].
pub fn ask_once(path: &Path, subject: Subject) -> Result<Answer> {
    Asker::start([path], subject).map_err(|error| CliError::at(path, error))?.ask_now(path)
}

/// An error unless each of `paths` is on a mounted volume that answers.
pub fn check_answers<P: AsRef<Path>>(paths: &[P]) -> Result<()> {
    ask_modes(paths).try_for_each(|answer| answer.map(drop))
}

/// The answer of each of `paths` about its data mode. An error if it does not, or if it is not on a
/// mounted volume.
pub fn ask_modes<P: AsRef<Path>>(paths: &[P]) -> impl Iterator<Item = Result<Answer>> {
    let mut asker = None;
    paths.iter().map(move |path| {
        let path: &Path = path.as_ref();
        let asker = match &mut asker {
            Some(asker) => asker,
            None => {
                let all = paths.iter().map(|path| -> &Path { path.as_ref() });
                let started = Asker::start(all, Subject::Mode);
                asker.insert(started.map_err(|error| CliError::at(path, error))?)
            }
        };
        let answer = asker.ask_now(path)?;
        match answer.error {
            None => Ok(answer),
            Some(error) => Err(CliError::new(error)),
        }
    })
}

/// A process that asks a mount, or something else.
#[derive(Debug)]
pub struct Asker<A = Answer> {
    questions: ChildStdin,
    /// Is closed when the process has started.
    started: Receiver<Infallible>,
    answers: Receiver<A>,
    /// Whether its answer to the last question is still missing.
    is_asked: bool,
    running: Running,
}

/// Tells whether a process has ended.
#[derive(Debug, Clone)]
pub struct Running(Weak<()>);

impl Running {
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Asker {
    /// Asks each of `paths` in turn.
    pub fn start(
        paths: impl IntoIterator<Item = impl AsRef<OsStr>>,
        subject: Subject,
    ) -> std::io::Result<Asker> {
        let flag = match subject {
            Subject::Volume => None,
            Subject::VolumeWithFiles => Some("--files"),
            Subject::File => Some("--of-file"),
            Subject::Mode => Some("--mode"),
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg("ask").args(flag).arg("--").args(paths);
        Asker::spawn(command)
    }

    /// Asks and waits for the answer. `path` is for messages.
    pub fn ask_now(&mut self, path: &Path) -> Result<Answer> {
        self.wait_for_start(Instant::now() + START_LIMIT);
        self.ask();
        self.answer(Instant::now() + ANSWER_LIMIT).ok_or_else(|| {
            let why = format!(
                "its daemon has not answered for {} s: it is stopped, or waits for its disk",
                ANSWER_LIMIT.as_secs()
            );
            CliError::at(path, why)
        })
    }
}

impl<A: DeserializeOwned + Send + 'static> Asker<A> {
    /// Starts `command`, which answers each line of its input with a line of JSON.
    pub fn spawn(mut command: Command) -> std::io::Result<Asker<A>> {
        // It may wait longer than its caller lives, and keep the caller's locks as long.
        surroundings::keep_descriptors();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let questions = child.stdin.take().expect("it was asked for");
        let (start, started) = channel();
        let (sender, answers) = channel();
        let alive = Arc::new(());
        let running = Running(Arc::downgrade(&alive));
        let body = move || {
            pass_on(child, start, |answer| sender.send(answer).is_ok());
            drop(alive);
        };
        std::thread::Builder::new().name("oj-ask".into()).spawn(body)?;
        Ok(Asker { questions, started, answers, is_asked: false, running })
    }

    /// Returns when the process has started, but not after `give_up`. On a busy machine its start
    /// may take longer than an answer is waited for.
    pub fn wait_for_start(&self, give_up: Instant) {
        let _ = self.started.recv_timeout(give_up.saturating_duration_since(Instant::now()));
    }

    /// Asks, unless the last question is not answered yet.
    pub fn ask(&mut self) {
        // One that has ended does not answer.
        self.is_asked |= self.questions.write_all(b"\n").is_ok();
    }

    /// The answer; `None` if there is none before `give_up`.
    pub fn answer(&mut self, give_up: Instant) -> Option<A> {
        let left = give_up.saturating_duration_since(Instant::now());
        let answer = self.answers.recv_timeout(left).ok();
        self.is_asked &= answer.is_none();
        answer
    }

    /// Tells whether the process has ended, also when this is dropped.
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// Whether it waits for an answer.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }
}

/// Drops `start` when `child` has started. Passes its answers on until its end, or until the
/// receiver is gone.
fn pass_on<A: DeserializeOwned>(
    mut child: Child,
    start: Sender<Infallible>,
    mut take: impl FnMut(A) -> bool,
) {
    let mut answers = BufReader::new(child.stdout.take().expect("it was asked for"));
    let _ = answers.read_line(&mut String::new());
    drop(start);
    let answers = answers.lines().map_while(std::result::Result::ok);
    let mut answers = answers.filter_map(|line| serde_json::from_str(&line).ok());
    while answers.next().is_some_and(&mut take) {}
    drop(answers);
    // Its end, so that it does not stay as a zombie.
    let _ = child.wait();
}

#[derive(Args)]
pub struct AskArgs {
    /// With the files for which most was written
    #[arg(long)]
    files: bool,
    /// Counters of the file itself, unless it is a directory
    #[arg(long)]
    of_file: bool,
    /// Data modes
    #[arg(long)]
    mode: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// `onejournal ask`, which [`Asker`] runs.
pub fn run_ask(args: &AskArgs) -> Result<u8> {
    let mut names = FileNames::default();
    print_line(b"")?;
    for (line, path) in std::io::stdin().lock().lines().zip(args.paths.iter().cycle()) {
        line.map_err(|error| CliError::new(format!("standard input: {error}")))?;
        let mut answer = match (args.mode, args.of_file) {
            (true, _) => ask_mode(path),
            (_, true) => ask_of_file(path),
            _ => ask(path, mount::STAT_XATTR),
        };
        if args.files && !answer.counters.is_empty() {
            answer.files = files_of(path, &mut names);
        }
        say_json!(serde_json::to_string(&answer).expect("plain data"));
    }
    Ok(0)
}

fn ask(path: &Path, name: &[u8]) -> Answer {
    let pid = read_raw(path, mount::PID_XATTR).ok();
    let pid = pid.and_then(|pid| std::str::from_utf8(&pid).ok()?.trim().parse().ok());
    let answer = |state, counters, error| Answer { pid, counters, error, ..Answer::of(state) };
    let text = read_raw(path, name);
    let is_dead = text.as_ref().is_err_and(|errno| mount::is_daemon_gone(*errno));
    let text = text.map_err(|errno| cannot_read(path, errno));
    match text.and_then(|text| parse(path, &String::from_utf8_lossy(&text))) {
        Ok(counters) => {
            let state = state_of(&Counters(counters.clone()), is_mounted_read_only(path));
            answer(state, counters, None)
        }
        Err(error) => {
            let state = if is_dead { MountState::Dead } else { MountState::Hidden };
            answer(state, Map::new(), Some(error.text))
        }
    }
}

/// The numbers of a file, or of the volume with everything that is shown beside its counters. The
/// paths in the answer may be anyone's, so they are looked at here, where it does no harm to wait.
fn ask_of_file(path: &Path) -> Answer {
    if std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return ask(path, mount::FILE_XATTR);
    }
    let mut answer = ask(path, mount::STAT_XATTR);
    let volume = ServedVolume::mounted_on(path).ok().flatten();
    let dir = volume.as_ref().and_then(|volume| volume.dirs.last());
    answer.mounted_on = dir.map(|dir| dir.to_string_lossy().into_owned());
    let target = answer.counters.get("target").and_then(Value::as_str);
    answer.is_image = target.is_some_and(|target| Path::new(target).is_file());
    answer
}

/// The words of a data mode.
fn ask_mode(path: &Path) -> Answer {
    let answer = Answer::of(MountState::ReadWrite);
    match read_attribute(path, mount::MODE_XATTR) {
        Ok(mode) => {
            let declared = declared_bytes(path).map_or(Value::Null, Value::from);
            let counters = [("mode".to_owned(), mode.into()), ("atomic".to_owned(), declared)];
            Answer { counters: Map::from_iter(counters), ..answer }
        }
        Err(error) => Answer { error: Some(error.text), ..answer },
    }
}

/// The kernel knows of a remount; the daemon may not.
fn is_mounted_read_only(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn state_of(counters: &Counters, is_mounted_read_only: bool) -> MountState {
    match (counters.is_set("read_only"), counters.text("last_error")) {
        (true, Some(_)) => MountState::Failed,
        (true, None) => MountState::ReadOnly,
        (false, _) if is_mounted_read_only => MountState::ReadOnly,
        (false, _) => MountState::ReadWrite,
    }
}
