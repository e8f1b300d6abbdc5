//! The logs of this machine that a process has open, and the counters of their streams.
//!
//! A process that uses a log holds a lock on a file in its directory: `daemon`, or one in
//! `clients`. The logs are found by these files among the open files of `/proc`. There root sees
//! all processes, and other users see their own. Nothing in a log's directory is believed unless it
//! belongs to this user or to the user of that process (docs/reference/security.md).
//!
//! A directory or a daemon may take any time to answer, and so may a process that is looked at. A
//! thread asks each log, and no second one is started for it before the first has ended. These
//! threads are in a process of their own, `onejournal ask-logs`: a thread that waits for a file
//! system that does not answer keeps its process from ending, even by SIGKILL.
//!
//! # Memory
//!
//! A user may have any number of logs, with any number of streams. So a look keeps at most
//! [`USER_LOG_LIMIT`] logs of a user and [`LOG_LIMIT`] in all, and at most 200 streams of each, and
//! counts the others. With names and paths of the greatest length, this process and the one that it
//! answers take less than 300 MiB each.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use host::Account;
use log::{CLIENT_COUNT_MAX, ConnectOptions, Log, Look, StreamStat};
use serde::{Deserialize, Serialize};

use super::ask::Asker;
use super::{ANSWER_LIMIT, START_LIMIT, look_json, paths};
use crate::error::{CliError, Result};
use crate::output::{print_line, say_json};
use crate::process_looks::{Finding, LOOK_LIMIT, ProcessLooks};

/// How long that process may take to look at all processes and to wait for the logs.
const LOGS_LIMIT: Duration = Duration::from_secs(LOOK_LIMIT.as_secs() + ANSWER_LIMIT.as_secs() + 1);
/// The most logs that are kept: of all users, and of one. At most so many threads wait for a user
/// whose logs never answer.
const LOG_LIMIT: usize = 512;
const USER_LOG_LIMIT: usize = 256;
/// Most letters of an error.
const TEXT_LIMIT: usize = 8192;
/// The most sockets of a daemon that are looked at.
const SOCKET_LIMIT: usize = 8192;

/// A log that a process has open.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SeenLog {
    #[serde(with = "paths::one")]
    pub dir: PathBuf,
    /// The daemon, if one serves it.
    pub daemon_pid: Option<i32>,
    /// Where the daemon listens.
    #[serde(with = "paths::maybe")]
    pub socket: Option<PathBuf>,
    /// Processes that have the directory open themselves. A log has at most
    /// [`CLIENT_COUNT_MAX`] of them.
    pub pids: BTreeSet<i32>,
    /// Connections to the daemon.
    pub connection_count: usize,
    /// User and group of one of the processes.
    pub owner: (u32, u32),
    /// The content of the directory, or the reason why it is not believed.
    #[serde(with = "look_json")]
    pub look: Option<Look>,
    pub refusal: Option<String>,
    /// The first ones by name. The look says how many there are.
    pub streams: Vec<StreamCounters>,
}

/// A stream and its counters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamCounters {
    pub name: String,
    /// Bytes its log files take.
    pub file_bytes: u64,
    /// The counters from the daemon.
    pub stat: Option<StreamStat>,
}

impl SeenLog {
    /// What a synced append survives.
    pub fn durability(&self) -> &'static str {
        self.look.as_ref().map_or("-", |look| look.durability.name())
    }

    /// How many streams it has beside the ones that are named.
    pub fn stream_rest(&self) -> usize {
        let all = self.look.as_ref().map_or(0, |look| look.streams.count);
        all.saturating_sub(self.streams.len())
    }

    /// The number of programs that use it: connections to the daemon, or processes.
    pub fn client_count(&self) -> usize {
        if self.daemon_pid.is_some() { self.connection_count } else { self.pids.len() }
    }
}

/// Looks at a log. `None`: the directory is no log's.
type Ask = fn(SeenLog) -> Option<SeenLog>;

/// A question that was not answered yet.
struct Question {
    /// To whom the log's process counts.
    user: Account,
    answer: Receiver<Option<SeenLog>>,
}

/// All logs that are visible, by directory. One that does not answer in time has neither content
/// nor counters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SeenLogs {
    pub logs: Vec<SeenLog>,
    /// How many more there are, which are not kept.
    pub left_out_count: usize,
    /// Whether all processes could be looked at.
    pub is_all: bool,
}

/// The process that looks at the logs.
pub struct Logs {
    with_counters: bool,
    asker: Option<Asker<SeenLogs>>,
}

impl Logs {
    /// Reads the counters of the logs that a daemon serves, too.
    pub fn with_counters() -> Logs {
        Logs { with_counters: true, asker: None }
    }

    /// Reads no counters.
    pub fn without_counters() -> Logs {
        Logs { with_counters: false, asker: None }
    }

    /// The logs as that process sees them now.
    pub fn look(&mut self) -> SeenLogs {
        let Some(asker) = self.asker() else { return SeenLogs::default() };
        asker.wait_for_start(Instant::now() + START_LIMIT);
        if !asker.is_asked() {
            asker.ask();
        }
        let seen = asker.answer(Instant::now() + LOGS_LIMIT);
        if seen.is_none() && asker.running().is_over() {
            self.asker = None;
        }
        seen.unwrap_or_default()
    }

    fn asker(&mut self) -> Option<&mut Asker<SeenLogs>> {
        if self.asker.is_none() {
            let mut command = Command::new("/proc/self/exe");
            command.arg("ask-logs").args(self.with_counters.then_some("--counters"));
            self.asker = Asker::spawn(command).ok();
        }
        self.asker.as_mut()
    }
}

#[derive(Args)]
pub struct AskLogsArgs {
    /// With the counters of the logs that a daemon serves
    #[arg(long)]
    counters: bool,
}

/// `onejournal ask-logs`, which [`Logs`] runs.
pub fn run_ask_logs(args: &AskLogsArgs) -> Result<u8> {
    let ask: Ask = if args.counters { look_and_ask } else { look_at };
    let mut questions = Questions { ask, open: HashMap::new(), looks: ProcessLooks::new() };
    print_line(b"")?;
    for line in std::io::stdin().lock().lines() {
        line.map_err(|error| CliError::new(format!("standard input: {error}")))?;
        let seen = serde_json::to_string(&questions.look()).expect("plain data");
        say_json!(seen);
    }
    Ok(0)
}

/// State that is kept from one look at the logs to the next.
struct Questions {
    ask: Ask,
    /// The questions, by the log's directory.
    open: HashMap<PathBuf, Question>,
    looks: ProcessLooks<OpenLog>,
}

impl Questions {
    fn look(&mut self) -> SeenLogs {
        let (open, is_all) = self.looks.look(LOOK_LIMIT, logs_of);
        let (logs, left_out_count) = together(open);
        SeenLogs { logs: self.look_at(logs), left_out_count, is_all }
    }

    /// The same for `logs`.
    fn look_at(&mut self, logs: BTreeMap<PathBuf, SeenLog>) -> Vec<SeenLog> {
        let is_open =
            |question: &Question| matches!(question.answer.try_recv(), Err(TryRecvError::Empty));
        self.open.retain(|dir, question| logs.contains_key(dir) || is_open(question));
        for log in logs.values() {
            self.begin(log);
        }
        let give_up = Instant::now() + ANSWER_LIMIT;
        let answered = logs.into_values().filter_map(|log| self.answer(log, give_up));
        answered.collect()
    }

    /// Asks the log, unless its last answer is still missing.
    fn begin(&mut self, log: &SeenLog) {
        let user = Account::of(log.owner.0);
        let asked = self.open.values().filter(|question| question.user == user).count();
        if self.open.contains_key(&log.dir) || asked >= USER_LOG_LIMIT {
            return;
        }
        let (ask, subject) = (self.ask, log.clone());
        let (sender, answer) = channel();
        // Nothing may wait for the answer any more.
        let body = move || drop(sender.send(ask(subject)));
        // Without a thread it does not answer.
        if std::thread::Builder::new().name("oj-ask".into()).spawn(body).is_ok() {
            self.open.insert(log.dir.clone(), Question { user, answer });
        }
    }

    /// The log as it answers before `give_up`. `None`: it is none.
    fn answer(&mut self, log: SeenLog, give_up: Instant) -> Option<SeenLog> {
        let Some(question) = self.open.get(&log.dir) else { return Some(log) };
        let left = give_up.saturating_duration_since(Instant::now());
        match question.answer.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => Some(log),
            answer => {
                self.open.remove(&log.dir);
                answer.unwrap_or(Some(log))
            }
        }
    }
}

/// If `path` is such a file of a log's directory: the directory, and whether it is the daemon's
/// file.
fn place_in_log(path: &Path) -> Option<(&Path, bool)> {
    let (name, parent) = (path.file_name()?.to_str()?, path.parent()?);
    if name == "daemon" {
        return Some((parent, true));
    }
    let is_slot = name.len() == 3 && name.bytes().all(|byte| byte.is_ascii_digit());
    (is_slot && parent.file_name()? == "clients").then_some((parent.parent()?, false))
}

/// A log that a process has open.
struct OpenLog {
    pid: i32,
    owner: (u32, u32),
    dir: PathBuf,
    is_daemon: bool,
}

impl OpenLog {
    fn note(self, logs: &mut BTreeMap<PathBuf, SeenLog>) {
        let OpenLog { pid, owner, dir, is_daemon } = self;
        let new = || SeenLog { dir: dir.clone(), owner, ..SeenLog::default() };
        let log = logs.entry(dir.clone()).or_insert_with(new);
        if is_daemon {
            log.daemon_pid = Some(pid);
        } else if log.pids.len() < CLIENT_COUNT_MAX {
            log.pids.insert(pid);
        }
    }
}

impl Finding for OpenLog {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.dir.as_os_str().len()
    }
}

/// The logs that are kept, and how many are not. The logs of this user and of the users with the
/// lowest numbers come first.
fn together(mut open: Vec<OpenLog>) -> (BTreeMap<PathBuf, SeenLog>, usize) {
    let mut logs = BTreeMap::new();
    let mut kept: HashMap<Account, usize> = HashMap::new();
    let mut left_out = HashSet::new();
    let user = |open: &OpenLog| Account::of(open.owner.0);
    open.sort_by_cached_key(|open| (user(open) != Account::own(), user(open)));
    for open in open {
        if !logs.contains_key(&open.dir) {
            let count = kept.entry(user(&open)).or_default();
            if *count >= USER_LOG_LIMIT || logs.len() >= LOG_LIMIT {
                left_out.insert(open.dir);
                continue;
            }
            *count += 1;
        }
        open.note(&mut logs);
    }
    (logs, left_out.len())
}

/// The logs that the process has open. May wait without an end.
fn logs_of(pid: i32) -> impl Iterator<Item = OpenLog> {
    let owner = host::process_owner(pid);
    let files = owner.into_iter().flat_map(move |_| host::open_files(pid));
    files.filter_map(move |link| {
        let (owner, path) = (owner?, fs::read_link(&link).ok()?);
        let (dir, is_daemon) = place_in_log(&path)?;
        let is_locked = is_locked(pid, &link.file_name()?.to_string_lossy());
        is_locked.then(|| OpenLog { pid, owner, dir: dir.to_owned(), is_daemon })
    })
}

/// Whether the process holds an exclusive lock on its open file. (Reading `daemon` takes a shared
/// lock.)
fn is_locked(pid: i32, file: &str) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{file}")).unwrap_or_default();
    info.lines().any(|line| {
        line.starts_with("lock:") && line.contains(" FLOCK ") && line.contains(" WRITE ")
    })
}

fn look_at(mut log: SeenLog) -> Option<SeenLog> {
    if !log.dir.join("service.json").exists() {
        return None;
    }
    match Look::at(&log.dir, log.owner) {
        Ok(mut look) => {
            let named = std::mem::take(&mut look.streams.named).into_iter();
            let stream = |(name, file_bytes)| StreamCounters { name, file_bytes, stat: None };
            log.streams = named.map(stream).collect();
            if let Some(pid) = log.daemon_pid {
                // The daemon has a slot, too.
                log.pids.clear();
                log.socket = look.socket.clone();
                let count = |socket: &PathBuf| connections_of(pid, socket);
                log.connection_count = log.socket.as_ref().map_or(0, count);
            }
            log.look = Some(look);
        }
        // It may repeat what is in a file.
        Err(error) => log.refusal = Some(error.to_string().chars().take(TEXT_LIMIT).collect()),
    }
    Some(log)
}

/// The same with the counters of the daemon, which has to be a process of the user to whom the
/// directory belongs.
fn look_and_ask(log: SeenLog) -> Option<SeenLog> {
    let mut log = look_at(log)?;
    let (Some(socket), Some(look)) = (&log.socket, &log.look) else { return Some(log) };
    let (retry, owners) = (Duration::ZERO, vec![look.owner]);
    let options = ConnectOptions { retry, owners, ..ConnectOptions::default() };
    let Ok(client) = Log::connect_with(socket, &options) else { return Some(log) };
    for stream in &mut log.streams {
        let open = client.existing_stream(&stream.name).ok().flatten();
        stream.stat = open.and_then(|open| open.stat().ok());
    }
    Some(log)
}

/// Number of connections that the process `pid` serves at `socket`. `/proc/net/unix` shows, at the
/// server's end of each, the name that the process gave to its socket.
fn connections_of(pid: i32, socket: &Path) -> usize {
    let own = sockets_of(pid);
    let Ok(table) = fs::File::open("/proc/net/unix") else { return 0 };
    let lines = BufReader::new(table).split(b'\n').map_while(std::result::Result::ok);
    let inodes = lines.filter_map(|line| connection_in(&String::from_utf8_lossy(&line), socket));
    inodes.filter(|inode| own.contains(inode)).count()
}

/// The numbers of the sockets that the process has open.
fn sockets_of(pid: i32) -> HashSet<u64> {
    let numbers = host::open_files(pid).filter_map(|link| {
        let link = fs::read_link(link).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    numbers.take(SOCKET_LIMIT).collect()
}

/// The number of the socket in a line of the table, if it is a connection to a socket with the name
/// of this one. The directory may be shown in another way.
fn connection_in(line: &str, socket: &Path) -> Option<u64> {
    const CONNECTED: &str = "03";
    let mut words = line.split_whitespace().skip(5);
    let (state, inode) = (words.next()?, words.next()?);
    // There may be spaces in it.
    let rest: Vec<&str> = words.collect();
    let is_it = Path::new(&rest.join(" ")).file_name() == socket.file_name();
    (state == CONNECTED && !rest.is_empty() && is_it).then(|| inode.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use log::StreamsFound;

    use super::*;

    #[test]
    fn files_of_a_log_are_told_by_their_names() {
        let place = |path: &'static str| place_in_log(Path::new(path));
        assert_eq!(place("/a/log/daemon"), Some((Path::new("/a/log"), true)));
        assert_eq!(place("/a/log/clients/012"), Some((Path::new("/a/log"), false)));
        for other in
            ["/a/log/clients/12", "/a/log/clients/abc", "/a/log/other/012", "socket:[3]", "/"]
        {
            assert_eq!(place(other), None, "{other}");
        }
    }

    /// Does not come back for the log "silent".
    fn ask(log: SeenLog) -> Option<SeenLog> {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        if log.dir == Path::new("silent") {
            ASKED.fetch_add(1, Ordering::Relaxed);
            loop {
                std::thread::park();
            }
        }
        let connection_count = ASKED.load(Ordering::Relaxed);
        (log.dir != Path::new("none")).then_some(SeenLog { connection_count, ..log })
    }

    fn questions() -> Questions {
        Questions { ask, open: HashMap::new(), looks: ProcessLooks::new() }
    }

    #[test]
    fn regression_a_log_that_does_not_answer_is_asked_once_and_keeps_no_other() {
        let mut logs = questions();
        let seen = || {
            ["answers", "none", "silent"]
                .map(PathBuf::from)
                .map(|dir| (dir.clone(), SeenLog { dir, ..SeenLog::default() }))
        };
        for _ in 0..2 {
            let looked = logs.look_at(BTreeMap::from(seen()));
            let dirs: Vec<&Path> = looked.iter().map(|log| log.dir.as_path()).collect();
            assert_eq!(dirs, [Path::new("answers"), Path::new("silent")]);
            assert_eq!(looked[1].connection_count, 0, "no answer");
        }
        let [answers, ..] = seen();
        let looked = logs.look_at(BTreeMap::from([answers]));
        assert_eq!(looked[0].connection_count, 1, "asked once");
        assert_eq!(logs.open.len(), 1, "it is still waited for");
    }

    #[test]
    fn the_questions_to_the_logs_of_a_user_are_limited() {
        let mut logs = questions();
        let senders: Vec<_> = (0..USER_LOG_LIMIT)
            .map(|number| {
                let (sender, answer) = std::sync::mpsc::channel();
                logs.open
                    .insert(number.to_string().into(), Question { user: Account::of(7), answer });
                sender
            })
            .collect();
        let seen = |user| SeenLog { dir: "answers".into(), owner: (user, 0), ..SeenLog::default() };
        let begun = |logs: &mut Questions, user| {
            logs.begin(&seen(user));
            logs.open.remove(Path::new("answers")).is_some()
        };
        assert_eq!([7, 8].map(|user| begun(&mut logs, user)), [false, true]);
        logs.open.remove(Path::new("0"));
        assert!(begun(&mut logs, 7));
        drop(senders);
    }

    #[test]
    fn regression_the_logs_of_a_look_are_limited() {
        let own = rustix::process::geteuid().as_raw();
        let open = |number: usize, user: u32| OpenLog {
            pid: 1,
            owner: (user, 0),
            dir: format!("/{user}/{number:03}").into(),
            is_daemon: true,
        };
        // Each log twice, and other users first.
        let of = |user, count: usize| (0..2 * count).map(move |number| open(number / 2, user));
        let (logs, left_out_count) = together(of(own + 2, 300).chain(of(own + 1, 300)).collect());
        assert_eq!((logs.len(), left_out_count), (LOG_LIMIT, 600 - LOG_LIMIT));
        let others = of(own + 3, 300).chain(of(own + 2, 300));
        let all = others.chain(of(own + 1, 200)).chain(of(own, 200));
        let (logs, left_out_count) = together(all.collect());
        assert_eq!((logs.len(), left_out_count), (LOG_LIMIT, 1000 - LOG_LIMIT));
        let kept = |user| logs.values().filter(|log| log.owner.0 == user).count();
        assert_eq!([own, own + 1, own + 2, own + 3].map(kept), [200, 200, 112, 0]);
    }

    #[test]
    fn regression_processes_without_end_are_not_kept_for_one_log() {
        let open = |pid| OpenLog { pid, owner: (7, 0), dir: "/log".into(), is_daemon: false };
        let (logs, _) = together((0..50_000).map(open).collect());
        assert_eq!(logs[Path::new("/log")].pids.len(), CLIENT_COUNT_MAX);
    }

    #[test]
    fn the_content_of_a_log_passes_to_the_other_process() {
        let look = Look {
            uuid: "u".into(),
            owner: 7,
            socket: None,
            durability: device::Durability::Reboot,
            nvram: Some("/nvram".into()),
            pool_bytes: 5,
            streams: StreamsFound { count: 7, file_bytes: u64::MAX, named: Vec::new() },
        };
        let dir = PathBuf::from(OsStr::from_bytes(b"/no text \xff"));
        let log =
            SeenLog { dir, look: Some(look), socket: Some("/s".into()), ..SeenLog::default() };
        let logs = vec![log.clone(), SeenLog::default()];
        let seen = SeenLogs { logs, left_out_count: 5, is_all: true };
        let text = serde_json::to_string(&seen).unwrap();
        let SeenLogs { logs, left_out_count, is_all } = serde_json::from_str(&text).unwrap();
        assert!(is_all && left_out_count == 5 && logs[1].look.is_none());
        assert_eq!(
            (&logs[0].dir, &logs[0].socket, &logs[0].look),
            (&log.dir, &log.socket, &log.look)
        );
    }

    #[test]
    fn connections_are_told_from_the_listener() {
        let of = |line: &str| connection_in(line, Path::new("/run/a/b c"));
        let line = |state, path| {
            format!("0000000000000000: 00000003 00000000 00000000 0005 {state} 22953 {path}")
        };
        assert_eq!(of(&line("03", "/run/a/b c")), Some(22_953));
        assert_eq!(of(&line("03", "/proc/self/fd/9/b c")), Some(22_953));
        assert_eq!(of(&line("01", "/run/a/b c")), None);
        assert_eq!(of(&line("03", "/run/a/b c2")), None);
        assert_eq!(of("Num       RefCount Protocol Flags    Type St Inode Path"), None);
        assert_eq!(of(&line("03", "")), None);
    }
}
