//! Asks a mount, or a file on it, through a process of its own.
//!
//! A process that waits for an answer of a stopped daemon cannot be ended, and a thread that waits
//! for it keeps its process from ending. So another process asks: `onejournal ask DIR`. It
//! answers each line of its input with a line of JSON, and remembers the names of files that it has
//! found.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use clap::Args;
use rustix::fs::StatVfsMountFlags;
use serde_json::Map;

use super::ANSWER_LIMIT;
use super::answer::{Answer, MountState};
use super::files::{FileNames, files_of};
use crate::counters::{Counters, cannot_read, parse, read_raw};
use crate::{CliError, Result, say, surroundings};

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The volume.
    Volume,
    /// The volume and its files.
    VolumeWithFiles,
    /// The file; if it is a directory, the volume.
    File,
}

/// Asks at `path`. An error if there is no answer within [`ANSWER_LIMIT`].
pub fn ask_once(path: &Path, subject: Subject) -> Result<Answer> {
    Asker::start(path, subject).map_err(|error| CliError::at(path, error))?.ask_now(path)
}

/// A process that asks a mount.
#[derive(Debug)]
pub struct Asker {
    questions: ChildStdin,
    answers: Receiver<Answer>,
    /// Whether its answer to the last question is still missing.
    is_asked: bool,
}

impl Asker {
    pub fn start(path: &Path, subject: Subject) -> std::io::Result<Asker> {
        let flag = match subject {
            Subject::Volume => None,
            Subject::VolumeWithFiles => Some("--files"),
            Subject::File => Some("--of-file"),
        };
        // It may wait longer than its caller lives, and keep the caller's locks as long.
        surroundings::keep_descriptors();
        let mut command = Command::new("/proc/self/exe");
        command.arg("ask").args(flag).arg("--").arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let questions = child.stdin.take().expect("it was asked for");
        let (sender, answers) = channel();
        let body = move || pass_on(child, |answer| sender.send(answer).is_ok());
        std::thread::Builder::new().name("oj-ask".into()).spawn(body)?;
        Ok(Asker { questions, answers, is_asked: false })
    }

    /// Asks, unless the last question is not answered yet.
    pub fn ask(&mut self) {
        // One that has ended does not answer.
        self.is_asked |= self.questions.write_all(b"\n").is_ok();
    }

    /// The answer; `None` if there is none before `give_up`.
    pub fn answer(&mut self, give_up: Instant) -> Option<Answer> {
        let left = give_up.saturating_duration_since(Instant::now());
        let answer = self.answers.recv_timeout(left).ok();
        self.is_asked &= answer.is_none();
        answer
    }

    /// Asks and waits for the answer. `path` is for messages.
    pub fn ask_now(&mut self, path: &Path) -> Result<Answer> {
        self.ask();
        self.answer(Instant::now() + ANSWER_LIMIT).ok_or_else(|| {
            let why = format!(
                "its daemon has not answered for {} s: it is stopped, or waits for its disk",
                ANSWER_LIMIT.as_secs()
            );
            CliError::at(path, why)
        })
    }

    /// Whether it waits for an answer.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }
}

/// Passes the answers of `child` on until its end, or until the receiver is gone.
fn pass_on(mut child: Child, mut take: impl FnMut(Answer) -> bool) {
    let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
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
    /// Of the file, unless it is a directory
    #[arg(long)]
    of_file: bool,
    path: PathBuf,
}

/// `onejournal ask`, which [`Asker`] runs.
pub fn run_ask(args: &AskArgs) -> Result<u8> {
    let mut names = FileNames::default();
    for line in std::io::stdin().lock().lines() {
        line.map_err(|error| CliError::new(format!("standard input: {error}")))?;
        let is_file =
            args.of_file && std::fs::metadata(&args.path).is_ok_and(|found| found.is_file());
        let mut answer =
            ask(&args.path, if is_file { mount::FILE_XATTR } else { mount::STAT_XATTR });
        if args.files && !answer.counters.is_empty() {
            answer.files = files_of(&args.path, &mut names);
        }
        let text = serde_json::to_string(&answer).expect("plain data");
        say!("{text}");
    }
    Ok(0)
}

fn ask(path: &Path, name: &[u8]) -> Answer {
    let pid = read_raw(path, mount::PID_XATTR).ok();
    let pid = pid.and_then(|pid| std::str::from_utf8(&pid).ok()?.trim().parse().ok());
    let answer = |state, counters, error| Answer { state, pid, counters, error, files: Vec::new() };
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
