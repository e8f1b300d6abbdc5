//! `onejournal log`: reads and manages the streams of a log, through its daemon or in its
//! directory.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};
use host::{Trust, has_name};
use log::{Log, LogError, Lsn, Options, Orphan, Outcome, Reader, Record};
use serde_json::json;

use crate::output::{complain, plain, plain_path, print_line, print_text, say_json};
use crate::process_looks::TELL_LIMIT;
use crate::{CliError, Result, aside, error, mention, say, target};

#[derive(Args)]
pub struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

/// Which log.
#[derive(Args)]
struct Where {
    /// Directory of a log that no daemon serves
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Socket of the daemon
    #[arg(long, value_name = "SOCKET", conflicts_with = "dir")]
    socket: Option<PathBuf>,
    /// Directory for the memory that processes share, when there is none yet [default: /dev/shm]
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    memory: Option<PathBuf>,
}

#[derive(Subcommand)]
enum LogCommand {
    /// Print the names of the streams
    Ls {
        #[command(flatten)]
        place: Where,
        /// With their counters, as one JSON object on each line
        #[arg(long)]
        json: bool,
    },
    /// Print the records of a stream, each followed by a newline
    ///
    /// For a damaged stream, prints the records before the damage. On a terminal, control
    /// characters are shown as `?`.
    Cat {
        #[command(flatten)]
        place: Where,
        /// As one JSON object on each line: lsn, usn, and text or hex
        #[arg(long)]
        json: bool,
        /// Begin with the record at this LSN
        #[arg(long, value_name = "LSN")]
        from: Option<u64>,
        /// Name of the stream
        stream: String,
    },
    /// Print the last records of a stream
    Tail {
        #[command(flatten)]
        place: Where,
        /// One JSON object on each line, as `cat --json`
        #[arg(long)]
        json: bool,
        /// Number of records
        #[arg(short = 'n', default_value_t = 10)]
        count: usize,
        /// Then print records as they are appended, until interrupted
        #[arg(short = 'f', long)]
        follow: bool,
        /// Name of the stream
        stream: String,
    },
    /// Print the counters of the log, or of a stream
    Stat {
        #[command(flatten)]
        place: Where,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Name of the stream; without it, the counters of the log
        stream: Option<String>,
    },
    /// Remove a stream and all it holds
    Rm {
        #[command(flatten)]
        place: Where,
        /// Name of the stream
        stream: String,
    },
    /// Give up the damaged part of a stream and everything after it, so that it can be written
    /// again
    DiscardDamaged {
        #[command(flatten)]
        place: Where,
        /// Name of the stream
        stream: String,
    },
    /// Let a group use a stream through the daemon
    ///
    /// The daemon must not run meanwhile: stop it, run this as its user, and start it again. Its
    /// clients wait and go on.
    Permit {
        /// Directory of the log
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Name or number of the group
        #[arg(long, value_name = "GROUP")]
        group: String,
        /// Who may read and write: owner, group and others, as the permissions of a file
        #[arg(long, value_name = "MODE", default_value = "660", value_parser = parse_mode)]
        mode: u32,
        /// Name of the stream
        stream: String,
    },
    /// Bring home what killed processes left in shared memory, and remove it
    ///
    /// Opens and closes each log of this user that no process uses. Memory that cannot be brought
    /// to a log's files is kept, and the reason is printed.
    Gc {
        /// Where the logs have their shared memory
        #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
        memory: PathBuf,
        /// Remove this directory whatever it holds, if no process uses it
        #[arg(long, value_name = "PATH")]
        force: Vec<PathBuf>,
    },
}

/// The error of a command for one of the log.
pub fn failed(error: LogError) -> CliError {
    let code = match error {
        LogError::Damaged { .. } => error::UNCORRECTED,
        LogError::Usage(_)
        | LogError::TooLarge { .. }
        | LogError::PastEnd { .. }
        | LogError::WrongProcess => error::USAGE,
        _ => error::OPERATIONAL,
    };
    CliError { text: error.to_string(), code }
}

pub fn run(args: &LogArgs) -> Result<u8> {
    match &args.command {
        LogCommand::Ls { place, json } => with_log(place, |log| list(log, *json))?,
        LogCommand::Cat { place, json, from, stream } => {
            with_log(place, |log| cat(log, stream, from.map(Lsn), *json))?;
        }
        LogCommand::Tail { place, json, count, follow, stream } => {
            with_log(place, |log| tail(log, stream, *count, *follow, *json))?;
        }
        LogCommand::Stat { place, json, stream } => {
            with_log(place, |log| stat(log, stream.as_deref(), *json))?;
        }
        LogCommand::Rm { place, stream } => {
            with_log(place, |log| log.remove_stream(stream).map_err(|error| log.failed(error)))?;
        }
        LogCommand::DiscardDamaged { place, stream } => with_log(place, |log| {
            let end = log.discard_damaged(stream).map_err(|error| log.failed(error))?;
            mention!("{stream} ends at {end}");
            Ok(())
        })?,
        LogCommand::Permit { dir, group, mode, stream } => permit(dir, stream, group, *mode)?,
        LogCommand::Gc { memory, force } => collect(memory, force)?,
    }
    Ok(0)
}

/// Permissions in octal.
pub fn parse_mode(text: &str) -> std::result::Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("give permissions in octal, like 660".into()),
    }
}

fn permit(dir: &Path, stream: &str, group: &str, mode: u32) -> Result<()> {
    let gid = group_number(group)?;
    target::check_way(dir)?;
    let place = format!("--dir {}", plain_path(dir));
    match log::permit(dir, stream, gid, mode) {
        Err(error @ LogError::InUse(_)) => {
            let error = failed(error);
            Err(CliError {
                text: format!("{}. To change this stream, stop it", error.text),
                ..error
            })
        }
        done => done.map_err(|error| explained(error, &place)),
    }
}

/// The number of a group that is given by its name or number.
fn group_number(group: &str) -> Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    // The C library knows groups that are in no file.
    let found = Command::new("getent").args(["group", "--", group]).output();
    let found = found
        .map_err(|error| CliError::new(format!("getent: {error}; give the group's number")))?;
    let line = String::from_utf8_lossy(&found.stdout);
    let number = line.split(':').nth(2).and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        CliError::new(format!("there is no group {group}; to make it: groupadd {group}"))
    })
}

fn collect(memory: &Path, force: &[PathBuf]) -> Result<()> {
    target::check_way(memory)?;
    for Orphan { path, outcome } in log::collect_orphans(memory, force, is_open).map_err(failed)? {
        let path = plain_path(&path);
        match outcome {
            Outcome::BroughtHome(log) => {
                let log = plain_path(&log);
                mention!("removed {path}: its records are in the log {log}");
            }
            Outcome::GivenUp => mention!("removed {path} with all that it held"),
            Outcome::InUse => mention!("in use {path}"),
            Outcome::Kept { why } => mention!(
                "kept {path}: {why}; to give up the records that it may hold: onejournal log gc \
                 --memory {} --force {path}",
                plain_path(memory)
            ),
        }
    }
    Ok(())
}

/// Whether a process that `/proc` shows has a file in `dir` open or mapped, or may have one.
fn is_open(dir: &Path) -> bool {
    let arguments = ["look", "files", "--"].map(OsStr::new);
    let told = aside::told_within(arguments.into_iter().chain([dir.as_os_str()]), TELL_LIMIT);
    if told.lines.is_empty() && !told.is_all {
        let dir = plain_path(dir);
        complain!("onejournal: {dir}: it cannot be seen within 2 s whether a process uses it");
    }
    !told.lines.is_empty() || !told.is_all
}

/// Whether the process has a file in `dir` open or mapped. May wait without an end.
pub fn has_open(pid: i32, dir: &Path) -> bool {
    let mut paths = host::open_files(pid).filter_map(|link| fs::read_link(link).ok());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    paths.any(|path| path.starts_with(dir)) || maps.contains(&*dir.to_string_lossy())
}

/// An open log, and the arguments that name it on a command line.
struct Opened {
    log: Log,
    place: String,
}

impl Deref for Opened {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl Opened {
    fn failed(&self, error: LogError) -> CliError {
        explained(error, &self.place)
    }
}

/// The error of a command for one of the log that the options `place` name.
fn explained(error: LogError, place: &str) -> CliError {
    let what_to_do = match error {
        LogError::NotFound(_) | LogError::Truncated { .. } => {
            format!("; to see what there is: onejournal log ls {place}")
        }
        _ => String::new(),
    };
    let error = failed(error);
    CliError { text: format!("{}{what_to_do}", error.text), ..error }
}

fn open(place: &Where) -> Result<Opened> {
    let mut named = [&place.socket, &place.memory].into_iter().flatten();
    named.try_for_each(|path| target::check_way(path))?;
    if let Some(socket) = &place.socket {
        let log = Log::connect(socket).map_err(failed)?;
        return Ok(Opened { log, place: format!("--socket {}", plain_path(socket)) });
    }
    let Some(path) = &place.dir else {
        return Err(CliError::usage(
            "say which log: --dir DIR, the directory that the programs give (log=DIR), or, while \
             onejournal logd serves it, --socket DIR/socket",
        ));
    };
    let why = match Trust::own().and_root().reach_trusted(path) {
        Ok(dir) if has_name(&dir, "service.json") => None,
        Ok(_) => Some(
            "is no directory of a log; give the directory that the programs give, or that \
             onejournal logd --dir serves"
                .into(),
        ),
        Err(error) => Some(format!("{error}; give the directory of the log")),
    };
    if let Some(why) = why {
        return Err(CliError::at(path, why));
    }
    let default = Options::default();
    let memory = place.memory.clone().unwrap_or(default.memory.clone());
    let log = Log::open(path, &Options { memory, ..default }).map_err(failed)?;
    Ok(Opened { log, place: format!("--dir {}", plain_path(path)) })
}

/// Runs a command on a log, and closes it, which removes shared memory that only this process uses.
fn with_log(place: &Where, command: impl FnOnce(&Opened) -> Result<()>) -> Result<()> {
    let opened = open(place)?;
    let done = command(&opened);
    // Records that cannot be brought to the log files stay in shared memory, where they were
    // before.
    let _ = opened.log.close();
    done
}

fn list(log: &Opened, is_json: bool) -> Result<()> {
    for name in log.stream_names().map_err(|error| log.failed(error))? {
        if !is_json {
            say!("{name}");
            continue;
        }
        let stat = log.stream(name.as_str()).and_then(|stream| stream.stat());
        let line = match stat {
            Ok(stat) => serde_json::to_value(stat).expect("plain data"),
            Err(error) => json!({ "name": name.as_str(), "error": error.to_string() }),
        };
        say_json!(line.to_string());
    }
    Ok(())
}

fn reader(log: &Opened, name: &str, from: Option<Lsn>) -> std::result::Result<Reader, LogError> {
    let none = || LogError::NotFound(format!("there is no stream {name}"));
    let stream = log.existing_stream(name)?.ok_or_else(none)?;
    stream.read_from(from.unwrap_or_else(|| stream.head()))
}

fn cat(log: &Opened, name: &str, from: Option<Lsn>, is_json: bool) -> Result<()> {
    match reader(log, name, from) {
        Ok(reader) => {
            for record in reader {
                print_record(&record.map_err(|error| log.failed(error))?, is_json)?;
            }
            Ok(())
        }
        Err(damage @ LogError::Damaged { .. }) => {
            let mut at = from.unwrap_or(Lsn(0));
            loop {
                let (records, next) = log.salvage(name, at).map_err(|error| log.failed(error))?;
                if records.is_empty() {
                    return Err(log.failed(damage));
                }
                for record in &records {
                    print_record(record, is_json)?;
                }
                at = next;
            }
        }
        Err(error) => Err(log.failed(error)),
    }
}

fn tail(log: &Opened, name: &str, count: usize, is_following: bool, is_json: bool) -> Result<()> {
    let mut reader = reader(log, name, None).map_err(|error| log.failed(error))?;
    let mut last = VecDeque::new();
    while let Some(record) = reader.next_record().map_err(|error| log.failed(error))? {
        last.push_back(record);
        if last.len() > count {
            last.pop_front();
        }
    }
    for record in &last {
        print_record(record, is_json)?;
    }
    if !is_following {
        return Ok(());
    }
    loop {
        match reader.next_record().map_err(|error| log.failed(error))? {
            Some(record) => print_record(&record, is_json)?,
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn stat(log: &Opened, name: Option<&str>, is_json: bool) -> Result<()> {
    let stat = match name {
        None => serde_json::to_value(log.stat()),
        Some(name) => {
            let none = || LogError::NotFound(format!("there is no stream {name}"));
            let found = log.existing_stream(name).and_then(|stream| stream.ok_or_else(none));
            let stream = found.map_err(|error| log.failed(error))?;
            serde_json::to_value(stream.stat().map_err(|error| log.failed(error))?)
        }
    };
    let stat = stat.expect("plain data");
    if is_json {
        say_json!(stat.to_string());
        return Ok(());
    }
    for (name, value) in stat.as_object().expect("a struct") {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        say!("{name:18}  {}", plain(&value));
    }
    Ok(())
}

fn print_record(record: &Record, is_json: bool) -> Result<()> {
    if !is_json {
        return match std::io::stdout().is_terminal() {
            true => print_text(&String::from_utf8_lossy(&record.payload)),
            false => print_line(&record.payload),
        };
    }
    let mut line = json!({ "lsn": record.lsn.0, "usn": record.usn.0 });
    match std::str::from_utf8(&record.payload) {
        Ok(text) => line["text"] = text.into(),
        Err(_) => {
            let hex: String = record.payload.iter().map(|byte| format!("{byte:02x}")).collect();
            line["hex"] = hex.into();
        }
    }
    say_json!(line.to_string());
    Ok(())
}
