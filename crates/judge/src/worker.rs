//! A separate process that writes databases and streams, or reads what a crash left of them.
//!
//! It is this program, started again. Its environment says what to do ([`run`]). Its standard input
//! is a socket for questions and answers in lines. The question `ACTOR NUMBER` asks to commit this
//! transaction. The answers are `ACTOR ready COUNT`, once when the actor has opened what it writes,
//! `ACTOR done` and `ACTOR failed WHY`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use device::sync::Mutex;

use crate::case::How;
use crate::command::spawn;
use crate::database::{self, Client, DatabasePlace};
use crate::paths::database_dir;
use crate::scenario::{Actor, Database, LogPlace, Scenario, Store};
use crate::space::{ROOT, SOCKET_IN_CONTAINER, Space};
use crate::store;
use crate::streams;

/// The environment variable with the task: `work SCENARIO ACTOR...` or `check SCENARIO
/// opened|served`.
const TASK: &str = "ONEJOURNAL_JUDGE_TASK";

/// The log that programs share.
pub fn log_dir() -> PathBuf {
    Path::new(ROOT).join("log")
}

fn log_path(scenario: &Scenario, is_served: bool) -> PathBuf {
    match is_served {
        false => log_dir(),
        true if scenario.is_contained() => SOCKET_IN_CONTAINER.into(),
        true => log_dir().join("socket"),
    }
}

/// The judge's side of a worker.
pub struct Worker {
    child: Child,
    to: Option<Arc<Mutex<UnixStream>>>,
    ready: Vec<(usize, u64)>,
    hands: HashMap<usize, Hand>,
}

/// The connection to one actor of a worker.
pub struct Hand {
    actor: usize,
    to: Arc<Mutex<UnixStream>>,
    answers: Receiver<String>,
}

impl Worker {
    /// Starts a worker for these actors. Returns when they have opened what they write.
    pub fn hire(
        space: &Space,
        program: &[OsString],
        scenario: &Scenario,
        actors: &[usize],
    ) -> Result<Worker, String> {
        let names: Vec<String> = actors.iter().map(usize::to_string).collect();
        let task = format!("work {} {}", scenario.name, names.join(" "));
        let (child, socket) = start(space, program, scenario.is_contained(), &task)?;
        let mut lines = BufReader::new(socket.try_clone().map_err(|e| e.to_string())?).lines();
        let to = Arc::new(Mutex::new(socket));
        let mut worker =
            Worker { child, to: Some(to.clone()), ready: Vec::new(), hands: HashMap::new() };
        while worker.ready.len() < actors.len() {
            let line = lines.next().and_then(Result::ok).ok_or("a worker ended early")?;
            worker.ready.push(count(&line)?);
        }
        let mut ways: HashMap<usize, Sender<String>> = HashMap::new();
        for &actor in actors {
            let (sender, answers) = channel();
            ways.insert(actor, sender);
            worker.hands.insert(actor, Hand { actor, to: to.clone(), answers });
        }
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some((actor, answer)) = split(&line) else { return };
                // Who does not listen any more has failed already.
                let _ = ways.get(&actor).map(|way| way.send(answer.to_owned()));
            }
        });
        Ok(worker)
    }

    /// The number of transactions that each actor found when it opened.
    pub fn ready(&self) -> &[(usize, u64)] {
        &self.ready
    }

    /// The connection to an actor. Can be taken once.
    pub fn hand(&mut self, actor: usize) -> Option<Hand> {
        self.hands.remove(&actor)
    }

    /// Tells it to close everything, and waits for its end.
    pub fn dismiss(mut self) -> Result<(), String> {
        self.hands.clear();
        if let Some(to) = self.to.take() {
            to.lock().shutdown(std::net::Shutdown::Write).map_err(|e| e.to_string())?;
        }
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("a worker ended with {status}")) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // At its end already, or the run has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Hand {
    /// Commits.
    pub fn commit(&mut self, number: u64) -> Result<(), String> {
        let line = format!("{} {number}\n", self.actor);
        self.to.lock().write_all(line.as_bytes()).map_err(|e| format!("a worker: {e}"))?;
        match self.answers.recv().as_deref() {
            Ok("done") => Ok(()),
            Ok(answer) => Err(answer.to_owned()),
            Err(_) => Err("a worker ended early".into()),
        }
    }
}

/// What each actor of a scenario finds on the disk that is mounted in `space`.
pub fn check(
    space: &Space,
    program: &[OsString],
    scenario: &Scenario,
    how: How,
) -> Result<Vec<u64>, String> {
    let is_served = how == How::Served;
    let how = if is_served { "served" } else { "opened" };
    let is_contained = is_served && scenario.is_contained();
    let task = format!("check {} {how}", scenario.name);
    let (mut child, socket) = start(space, program, is_contained, &task)?;
    let lines: Result<Vec<String>, _> = BufReader::new(socket).lines().collect();
    let status = child.wait().map_err(|e| e.to_string())?;
    let found: Vec<(usize, u64)> = lines
        .map_err(|e| e.to_string())?
        .iter()
        .map(|line| count(line))
        .collect::<Result<_, _>>()?;
    if !status.success() || found.len() != scenario.actors.len() {
        return Err(format!("who opens it ends with {status}"));
    }
    Ok(found.into_iter().map(|(_, count)| count).collect())
}

fn start(
    space: &Space,
    program: &[OsString],
    is_contained: bool,
    task: &str,
) -> Result<(Child, UnixStream), String> {
    let (mine, other) = UnixStream::pair().map_err(|e| e.to_string())?;
    let (first, arguments) = program.split_first().ok_or("there is no program for workers")?;
    let mut command = match is_contained {
        true => space.command_in_container(first),
        false => space.command(first),
    };
    command.args(arguments).env(TASK, task);
    command.stdin(OwnedFd::from(other)).stdout(Stdio::null());
    let child = spawn(&mut command).map_err(|e| format!("{command:?}: {e}"))?;
    Ok((child, mine))
}

fn split(line: &str) -> Option<(usize, &str)> {
    let (actor, rest) = line.split_once(' ')?;
    Some((actor.parse().ok()?, rest))
}

/// Parses `ACTOR ready COUNT`; any other line is an error.
fn count(line: &str) -> Result<(usize, u64), String> {
    let (actor, answer) = split(line).ok_or_else(|| format!("a worker says {line:?}"))?;
    let count = answer.strip_prefix("ready ").and_then(|count| count.parse().ok());
    count.map(|count| (actor, count)).ok_or_else(|| format!("actor {actor}: {answer}"))
}

/// What an actor writes.
enum Work {
    Database(Client),
    Stream(streams::Writer),
    Store(store::Writer),
}

/// Runs the task in the environment, as a process of its own.
pub fn run() -> Result<(), String> {
    let task = std::env::var(TASK).map_err(|_| format!("{TASK} is not set"))?;
    let words: Vec<&str> = task.split(' ').collect();
    let socket = rustix::io::dup(rustix::stdio::stdin()).map_err(|e| e.to_string())?;
    let socket = UnixStream::from(socket);
    match words[..] {
        ["work", scenario, ref actors @ ..] => work(Scenario::named(scenario)?, actors, socket),
        ["check", scenario, how] => look(Scenario::named(scenario)?, how == "served", socket),
        _ => Err(format!("{task:?} is no task")),
    }
}

/// Runs all actors, each in a thread, until the judge closes the socket.
fn work(scenario: &'static Scenario, actors: &[&str], socket: UnixStream) -> Result<(), String> {
    let lines = BufReader::new(socket.try_clone().map_err(|e| e.to_string())?).lines();
    let out = Mutex::new(socket);
    let say = |actor: usize, answer: &str| {
        let line = format!("{actor} {}\n", answer.replace('\n', "; "));
        out.lock().write_all(line.as_bytes()).map_err(|e| e.to_string())
    };
    let say = &say;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut ways = HashMap::new();
        for actor in actors {
            let actor: usize = actor.parse().map_err(|_| "an actor is a number")?;
            let (sender, numbers) = channel::<u64>();
            ways.insert(actor, sender);
            threads.push(scope.spawn(move || {
                let (mut work, count) = match open(scenario, actor) {
                    Ok(opened) => opened,
                    Err(why) => return say(actor, &format!("failed {why}")),
                };
                say(actor, &format!("ready {count}"))?;
                for number in numbers {
                    match work.commit(number) {
                        Ok(()) => say(actor, "done")?,
                        Err(why) => say(actor, &format!("failed {why}"))?,
                    }
                }
                work.close()
            }));
        }
        for line in lines.map_while(Result::ok) {
            let (actor, number) = split(&line).ok_or("a line is ACTOR NUMBER")?;
            let number = number.parse().map_err(|_| "a line is ACTOR NUMBER")?;
            let _ = ways.get(&actor).map(|way| way.send(number));
        }
        drop(ways);
        let ended = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a panic".into())));
        ended.collect()
    })
}

/// Where the database of an actor is, if it has one.
fn database_of(scenario: &Scenario, actor: usize) -> Option<(PathBuf, &'static Database, usize)> {
    let root = Path::new(ROOT);
    match scenario.actors[actor] {
        Actor::Database(how) => Some((database_dir(root, actor), how, 0)),
        Actor::Together(how) => Some((root.join("together"), how, actor)),
        _ => None,
    }
}

fn open(scenario: &Scenario, actor: usize) -> Result<(Work, u64), String> {
    let place = scenario.hosted.expect("workers are for these").log;
    let log = log_path(scenario, place == LogPlace::Daemon);
    if let Actor::Store(how) = scenario.actors[actor] {
        let (writer, count) = open_store(actor, how, &log)?;
        return Ok((Work::Store(writer), count));
    }
    let Some((dir, how, owner)) = database_of(scenario, actor) else {
        let (writer, count) = streams::Writer::open(&log, actor)?;
        return Ok((Work::Stream(writer), count));
    };
    let log = (place != LogPlace::Beside).then_some(log.as_path());
    let place = DatabasePlace { dir: &dir, log, owner };
    let made = dir.join(format!("made{actor}"));
    if !made.exists() {
        make(place, how, &made).map_err(|e| format!("making a database: {e}"))?;
    }
    let client = Client::open(place, how)?;
    let count = client.count()?;
    Ok((Work::Database(client), count))
}

/// Opens the LevelDB or RocksDB database of an actor.
fn open_store(actor: usize, how: &Store, log: &Path) -> Result<(store::Writer, u64), String> {
    let (root, dir) = (Path::new(ROOT), database_dir(Path::new(ROOT), actor));
    let made = fs::create_dir_all(&dir).and_then(|()| File::open(root)?.sync_all());
    made.map_err(|e| format!("{}: {e}", dir.display()))?;
    store::Writer::open(&dir, log, how, actor)
}

/// Makes the tables of a database, and when they are durable, the file that says so.
fn make(place: DatabasePlace<'_>, how: &Database, made: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    fs::create_dir_all(place.dir).map_err(text)?;
    File::open(ROOT).and_then(|root| root.sync_all()).map_err(text)?;
    Client::make(place, how)?;
    File::create(made).map_err(text)?;
    File::open(place.dir).and_then(|dir| dir.sync_all()).map_err(text)
}

impl Work {
    fn commit(&mut self, number: u64) -> Result<(), String> {
        match self {
            Work::Database(client) => client.commit(number),
            Work::Stream(writer) => writer.commit(number),
            Work::Store(writer) => writer.commit(number),
        }
    }

    fn close(self) -> Result<(), String> {
        match self {
            Work::Database(client) => client.close(),
            Work::Stream(writer) => writer.close(),
            Work::Store(writer) => writer.close(),
        }
    }
}

/// Reports what each actor finds.
fn look(scenario: &'static Scenario, is_served: bool, mut out: UnixStream) -> Result<(), String> {
    let found = if scenario.begins_empty() {
        streams::count_all(log_path(scenario, is_served), scenario.actors.len())
    } else {
        (0..scenario.actors.len()).map(|actor| look_at(scenario, actor, is_served)).collect()
    };
    let lines: String = match found {
        Ok(counts) => counts
            .iter()
            .enumerate()
            .map(|(actor, count)| format!("{actor} ready {count}\n"))
            .collect(),
        Err(why) => format!("0 failed {}\n", why.replace('\n', "; ")),
    };
    out.write_all(lines.as_bytes()).map_err(|e| e.to_string())
}

/// The number of transactions that are found with the extension, and after that without it.
fn look_at(scenario: &Scenario, actor: usize, is_served: bool) -> Result<u64, String> {
    let log = log_path(scenario, is_served);
    if let Actor::Store(how) = scenario.actors[actor] {
        let (writer, count) = open_store(actor, how, &log)?;
        writer.close()?;
        return Ok(count);
    }
    let (dir, how, owner) = database_of(scenario, actor).expect("the rest has databases");
    let place = scenario.hosted.expect("workers are for these").log;
    let log = (place != LogPlace::Beside).then_some(log.as_path());
    let place = DatabasePlace { dir: &dir, log, owner };
    let context = |why: String| format!("database of actor {actor}: {why}");
    let client = Client::open(place, how).map_err(context)?;
    let count = client.count().map_err(context)?;
    client.close().map_err(context)?;
    let plain = database::count(place, how).map_err(context)?;
    if plain != count {
        return Err(context(format!("{count} transactions with the extension, {plain} without")));
    }
    Ok(count)
}
