//! Redis with an append-only file that is synced before each answer.
//!
//! A session is a connection. Its transactions append a record to a list, replace a value, and
//! count both. The server rewrites its file all the time, because it may grow little: then it
//! renames new files, and deletes old ones.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use servers::SIGNALS;

use super::load::{count_records, count_through_server, record};
use super::{Engine, Place, Server, Session};
use crate::command::{Program, run};

const SERVER: &str = "/usr/bin/redis-server";
const CHECK: &str = "/usr/bin/redis-check-aof";
/// The list of its files.
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
const SETTINGS: [&str; 8] = [
    "--port 0",
    "--supervised systemd",
    "--daemonize no",
    "--save ''",
    "--appendonly yes",
    "--appendfsync always",
    "--auto-aof-rewrite-percentage 100",
    "--auto-aof-rewrite-min-size 64kb",
];

/// Redis with `appendfsync always`.
#[derive(Debug)]
pub struct Redis;

impl Engine for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn obstacle(&self) -> Option<String> {
        let missing = [SERVER, CHECK].into_iter().find(|path| !Path::new(path).exists());
        missing.map(|path| format!("needs Redis ({path})"))
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        self.start(place)?.map_or(Ok(()), Server::stop)
    }

    fn start(&self, place: &Place) -> Result<Option<Server>, String> {
        let mut server = place.program(SERVER);
        server.args(SETTINGS.iter().flat_map(|setting| setting.split(' ')).map(unquoted));
        server.arg("--dir").arg(&place.data).arg("--unixsocket").arg(socket(place));
        Program::of(server).serve(SIGNALS, &[]).map(Some)
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Connection::open(place, actor)?))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let count = |actor| Connection::open(place, actor)?.count();
        let counts = count_through_server(self, place, session_count, count)?;
        // The server has cut off what was written in part.
        run(place.program(CHECK).arg(place.data.join(MANIFEST)))?;
        Ok(counts)
    }

    fn is_torn_page(&self, _failure: &str) -> bool {
        false // It has no pages.
    }
}

fn unquoted(word: &str) -> &str {
    word.trim_matches('\'')
}

fn socket(place: &Place) -> PathBuf {
    place.sockets.join("socket")
}

/// A session.
struct Connection {
    stream: BufReader<UnixStream>,
    actor: usize,
}

impl Connection {
    fn open(place: &Place, actor: usize) -> io::Result<Connection> {
        let stream = BufReader::new(UnixStream::connect(socket(place))?);
        Ok(Connection { stream, actor })
    }

    /// Sends a command, and returns the parts of its reply.
    fn ask(&mut self, command: &str) -> io::Result<Vec<String>> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut parts = Vec::new();
        self.reply(&mut parts)?;
        Ok(parts)
    }

    fn reply(&mut self, parts: &mut Vec<String>) -> io::Result<()> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let number = || line[1..].parse::<usize>().map_err(io::Error::other);
        match line.as_bytes().first() {
            Some(b'+' | b':') => parts.push(line[1..].to_owned()),
            Some(b'$') if line == "$-1" => parts.push(String::new()),
            Some(b'$') => {
                let mut text = vec![0; number()? + 2];
                self.stream.read_exact(&mut text)?;
                parts.push(String::from_utf8_lossy(&text).trim_end().to_owned());
            }
            Some(b'*') => (0..number()?).try_for_each(|_| self.reply(parts))?,
            _ => return Err(io::Error::other(format!("Redis answers {line:?}"))),
        }
        Ok(())
    }

    /// Checks and counts the transactions.
    fn count(&mut self) -> io::Result<u64> {
        let actor = self.actor;
        let records = self.ask(&format!("LRANGE list{actor} 0 -1"))?;
        let total = self.ask(&format!("GET total{actor}"))?.concat();
        let last = self.ask(&format!("GET last{actor}"))?.concat();
        if last != records.last().map(String::as_str).unwrap_or_default() {
            return Err(io::Error::other(format!("actor {actor}: a part of a transaction")));
        }
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        count_records(actor, &records, &total).map_err(io::Error::other)
    }
}

impl Session for Connection {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let (actor, record) = (self.actor, record(number));
        for command in [
            "MULTI".to_owned(),
            format!("RPUSH list{actor} {record}"),
            format!("SET last{actor} {record}"),
            format!("INCR total{actor}"),
        ] {
            self.ask(&command)?;
        }
        let counts = self.ask("EXEC")?;
        match counts == [number.to_string(), "OK".to_owned(), number.to_string()] {
            true => Ok(()),
            false => Err(io::Error::other(format!("transaction {number} leads to {counts:?}"))),
        }
    }
}
