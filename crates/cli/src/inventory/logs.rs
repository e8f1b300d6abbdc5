//! The logs of this machine that a process has open, and the counters of their streams.
//!
//! A process that uses a log holds a lock on a file in its directory: `daemon`, or one in
//! `clients`. The logs are found by these files among the open files of `/proc`. There root sees
//! all processes, and other users see their own. Nothing in a log's directory is believed unless it
//! belongs to this user or to the user of that process (docs/reference/security.md).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::{ConnectOptions, Log, LogStat, Look, StreamStat};

use super::ask_all;

/// The most streams of a log whose counters are read.
const STREAM_LIMIT: usize = 200;

/// A log that a process has open.
#[derive(Debug, Clone, Default)]
pub struct SeenLog {
    pub dir: PathBuf,
    /// The daemon, if one serves it.
    pub daemon_pid: Option<i32>,
    /// Where the daemon listens.
    pub socket: Option<PathBuf>,
    /// Processes that have the directory open themselves.
    pub pids: Vec<i32>,
    /// Connections to the daemon.
    pub connection_count: usize,
    /// User and group of one of the processes.
    pub owner: (u32, u32),
    /// The content of the directory, or the reason why it is not believed.
    pub look: Option<Look>,
    pub refusal: Option<String>,
    /// The counters from the daemon.
    pub stat: Option<LogStat>,
    pub streams: Vec<StreamCounters>,
}

/// A stream and its counters.
#[derive(Debug, Clone)]
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

    /// The number of programs that use it: connections to the daemon, or processes.
    pub fn client_count(&self) -> usize {
        if self.daemon_pid.is_some() { self.connection_count } else { self.pids.len() }
    }
}

/// All logs that are visible, by directory.
pub fn logs() -> Vec<SeenLog> {
    ask(look_at)
}

/// The same, with the counters of the logs that a daemon serves.
pub fn logs_with_counters() -> Vec<SeenLog> {
    ask(|log| {
        let mut log = look_at(log);
        ask_daemon(&mut log);
        log
    })
}

fn ask(how: fn(SeenLog) -> SeenLog) -> Vec<SeenLog> {
    let mut logs = BTreeMap::new();
    for pid in device::processes() {
        note_process(pid, &mut logs);
    }
    let seen: Vec<SeenLog> = logs.into_values().collect();
    let answers = ask_all(seen.clone(), how);
    seen.into_iter().zip(answers).map(|(log, answer)| answer.unwrap_or(log)).collect()
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

/// Adds the logs that the process has open.
fn note_process(pid: i32, logs: &mut BTreeMap<PathBuf, SeenLog>) {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { return };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    for file in files {
        let Ok(path) = fs::read_link(file.path()) else { continue };
        let Some((dir, is_daemon)) = place_in_log(&path) else { continue };
        let number = file.file_name();
        if !is_locked(pid, &number.to_string_lossy()) || !dir.join("service.json").exists() {
            continue;
        }
        let log = logs.entry(dir.to_owned()).or_default();
        log.dir = dir.to_owned();
        log.owner = (process.uid(), process.gid());
        match is_daemon {
            true => log.daemon_pid = Some(pid),
            false if !log.pids.contains(&pid) => log.pids.push(pid),
            false => {}
        }
    }
}

/// Whether the process holds an exclusive lock on its open file. (Reading `daemon` takes a shared
/// lock.)
fn is_locked(pid: i32, file: &str) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{file}")).unwrap_or_default();
    info.lines().any(|line| {
        line.starts_with("lock:") && line.contains(" FLOCK ") && line.contains(" WRITE ")
    })
}

fn look_at(mut log: SeenLog) -> SeenLog {
    match Look::at(&log.dir, log.owner) {
        Ok(look) => {
            let stream = |(name, file_bytes): &(String, u64)| StreamCounters {
                name: name.clone(),
                file_bytes: *file_bytes,
                stat: None,
            };
            log.streams = look.streams.iter().take(STREAM_LIMIT).map(stream).collect();
            log.look = Some(look);
        }
        Err(error) => {
            log.refusal = Some(error.to_string());
            return log;
        }
    }
    if log.daemon_pid.is_some() {
        // The daemon has a slot, too.
        log.pids.clear();
        log.socket = socket_of(&log.dir);
        log.connection_count = log.socket.as_deref().map_or(0, connections_to);
    }
    log
}

/// The socket that the daemon has stored in its directory. [`Look::at`] has checked that the
/// directory can be believed.
fn socket_of(dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join("daemon")).ok()?;
    (!text.is_empty()).then(|| text.into())
}

fn ask_daemon(log: &mut SeenLog) {
    let Some(socket) = &log.socket else { return };
    let options = ConnectOptions { retry: Duration::ZERO, fallback: None };
    let Ok(client) = Log::connect_with(socket, &options) else { return };
    log.stat = Some(client.stat());
    for stream in &mut log.streams {
        let open = client.existing_stream(&stream.name).ok().flatten();
        stream.stat = open.and_then(|open| open.stat().ok());
    }
}

/// Number of connections to the socket at `path`, from `/proc/net/unix`, which shows the path at
/// the server's end.
fn connections_to(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table.lines().filter(|line| is_connection_to(line, path)).count()
}

fn is_connection_to(line: &str, path: &Path) -> bool {
    const CONNECTED: &str = "03";
    let mut words = line.split_whitespace();
    let state = words.nth(5);
    // The inode's number, then the path, in which there may be spaces.
    let is_there = words.next().is_some();
    let rest: Vec<&str> = words.collect();
    is_there && state == Some(CONNECTED) && Path::new(&rest.join(" ")) == path
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn connections_are_told_from_the_listener() {
        let path = Path::new("/run/a b/socket");
        let line = |state, path| {
            format!("0000000000000000: 00000003 00000000 00000000 0005 {state} 22953 {path}")
        };
        assert!(is_connection_to(&line("03", "/run/a b/socket"), path));
        assert!(!is_connection_to(&line("01", "/run/a b/socket"), path));
        assert!(!is_connection_to(&line("03", "/run/a b/socket2"), path));
        assert!(!is_connection_to("Num       RefCount Protocol Flags    Type St Inode Path", path));
        assert!(!is_connection_to(&line("03", ""), path));
    }
}
