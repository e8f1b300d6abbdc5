//! `onejournal log`: looks at the streams of a log, through its daemon or in its directory.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use log::{Log, LogError, Lsn, Options, Reader, Record};
use serde_json::json;

use crate::{CliError, Result, error};

#[derive(Args)]
pub struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

/// Which log.
#[derive(Args)]
struct Where {
    /// Directory of a log that no daemon serves
    #[arg(long, value_name = "DIR", required_unless_present = "socket")]
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
        /// With their counters, a JSON object on each line
        #[arg(long)]
        json: bool,
    },
    /// Print the records of a stream, each with a newline behind it
    ///
    /// Of a damaged stream: those before the damage.
    Cat {
        #[command(flatten)]
        place: Where,
        /// A JSON object on each line: lsn, usn, and text or hex
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
        /// As `cat --json`
        #[arg(long)]
        json: bool,
        /// So many
        #[arg(short = 'n', default_value_t = 10)]
        count: usize,
        /// And those that are appended from now on, until interrupted
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
        /// Name of the stream; without it the log's
        stream: Option<String>,
    },
    /// Remove a stream and all it holds
    Rm {
        #[command(flatten)]
        place: Where,
        /// Name of the stream
        stream: String,
    },
    /// Give up what is damaged of a stream and all behind it, so that it can be written again
    DiscardDamaged {
        #[command(flatten)]
        place: Where,
        /// Name of the stream
        stream: String,
    },
}

/// The error of a command for one of the log.
pub fn failed(error: LogError) -> CliError {
    let code = match error {
        LogError::Damaged { .. } => error::UNCORRECTED,
        LogError::Usage(_) => error::USAGE,
        _ => error::OPERATIONAL,
    };
    CliError { text: error.to_string(), code }
}

pub fn run(args: &LogArgs) -> Result<u8> {
    match &args.command {
        LogCommand::Ls { place, json } => list(&open(place)?, *json)?,
        LogCommand::Cat { place, json, from, stream } => {
            cat(&open(place)?, stream, from.map(Lsn), *json)?;
        }
        LogCommand::Tail { place, json, count, follow, stream } => {
            tail(&open(place)?, stream, *count, *follow, *json)?;
        }
        LogCommand::Stat { place, json, stream } => {
            stat(&open(place)?, stream.as_deref(), *json)?;
        }
        LogCommand::Rm { place, stream } => {
            open(place)?.remove_stream(stream).map_err(failed)?;
        }
        LogCommand::DiscardDamaged { place, stream } => {
            let end = open(place)?.discard_damaged(stream).map_err(failed)?;
            println!("{stream} ends at {end}");
        }
    }
    Ok(0)
}

fn open(place: &Where) -> Result<Log> {
    if let Some(socket) = &place.socket {
        return Log::connect(socket).map_err(failed);
    }
    let path = place.dir.as_ref().expect("one of them is required");
    if !path.join("service.json").exists() {
        return Err(CliError::at(path, "is no directory of a log"));
    }
    let default = Options::default();
    let memory = place.memory.clone().unwrap_or(default.memory.clone());
    Log::open(path, &Options { memory, ..default }).map_err(failed)
}

fn list(log: &Log, is_json: bool) -> Result<()> {
    for name in log.stream_names().map_err(failed)? {
        if !is_json {
            print_line(name.as_str().as_bytes())?;
            continue;
        }
        let stat = log.stream(name.as_str()).and_then(|stream| stream.stat());
        let line = match stat {
            Ok(stat) => serde_json::to_value(stat).expect("plain data"),
            Err(error) => json!({ "name": name.as_str(), "error": error.to_string() }),
        };
        print_line(line.to_string().as_bytes())?;
    }
    Ok(())
}

fn reader(log: &Log, name: &str, from: Option<Lsn>) -> std::result::Result<Reader, LogError> {
    let none = || LogError::NotFound(format!("there is no stream {name}"));
    let stream = log.existing_stream(name)?.ok_or_else(none)?;
    stream.read_from(from.unwrap_or_else(|| stream.head()))
}

fn cat(log: &Log, name: &str, from: Option<Lsn>, is_json: bool) -> Result<()> {
    match reader(log, name, from) {
        Ok(reader) => {
            for record in reader {
                print_record(&record.map_err(failed)?, is_json)?;
            }
            Ok(())
        }
        Err(damage @ LogError::Damaged { .. }) => {
            let mut at = from.unwrap_or(Lsn(0));
            loop {
                let (records, next) = log.salvage(name, at).map_err(failed)?;
                if records.is_empty() {
                    return Err(failed(damage));
                }
                for record in &records {
                    print_record(record, is_json)?;
                }
                at = next;
            }
        }
        Err(error) => Err(failed(error)),
    }
}

fn tail(log: &Log, name: &str, count: usize, is_following: bool, is_json: bool) -> Result<()> {
    let mut reader = reader(log, name, None).map_err(failed)?;
    let mut last = VecDeque::new();
    while let Some(record) = reader.next_record().map_err(failed)? {
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
        match reader.next_record().map_err(failed)? {
            Some(record) => print_record(&record, is_json)?,
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn stat(log: &Log, name: Option<&str>, is_json: bool) -> Result<()> {
    let stat = match name {
        None => serde_json::to_value(log.stat()),
        Some(name) => {
            let none = || CliError::new(format!("there is no stream {name}"));
            let stream = log.existing_stream(name).map_err(failed)?.ok_or_else(none)?;
            serde_json::to_value(stream.stat().map_err(failed)?)
        }
    };
    let stat = stat.expect("plain data");
    if is_json {
        return print_line(stat.to_string().as_bytes());
    }
    for (name, value) in stat.as_object().expect("a struct") {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        print_line(format!("{name:18}  {value}").as_bytes())?;
    }
    Ok(())
}

fn print_record(record: &Record, is_json: bool) -> Result<()> {
    if !is_json {
        return print_line(&record.payload);
    }
    let mut line = json!({ "lsn": record.lsn.0, "usn": record.usn.0 });
    match std::str::from_utf8(&record.payload) {
        Ok(text) => line["text"] = text.into(),
        Err(_) => {
            let hex: String = record.payload.iter().map(|byte| format!("{byte:02x}")).collect();
            line["hex"] = hex.into();
        }
    }
    print_line(line.to_string().as_bytes())
}

fn print_line(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.write_all(b"\n"));
    written.map_err(|error| CliError::new(format!("standard output: {error}")))
}
