//! NATS JetStream that syncs each message before it acknowledges it (`sync_interval: always`).
//!
//! A session is a connection. Its transactions publish a record to a stream of its own, and wait
//! for the acknowledgement.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use servers::SIGNALS;

use super::load::{count_records, count_through_server, record};
use super::{Engine, Place, SESSION_COUNT_MAX, Server, Session};
use crate::command::{Program, outcome};
use crate::rig::command;

const PYTHON: &str = "/usr/bin/python3";
/// Where `scripts/setup-databases` and Debian install it.
const SERVERS: [&str; 2] = ["/usr/local/bin/nats-server", "/usr/sbin/nats-server"];
/// The first version with `sync_interval`.
const VERSION_MIN: (u32, u32) = (2, 10);
/// The server's first port is a free one; it says which in its log, and does not notify. So this
/// script becomes the server, and a child reads the log: it writes the port to a file, then
/// notifies.
const START: &str = r#"
import os, socket, sys
server, config, port_file = sys.argv[1:]
log_end, server_end = os.pipe()
if os.fork():
    os.dup2(server_end, 2)
    os.close(log_end)
    os.close(server_end)
    os.execv(server, [server, "--config", config])
os.close(server_end)
for line in os.fdopen(log_end, errors="replace"):
    print(line, end="", file=sys.stderr, flush=True)
    if "Listening for client connections on" in line:
        with open(port_file, "w") as file:
            file.write(line.rsplit(":", 1)[1].strip())
    if "Server is ready" in line:
        name = os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1)
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", name)
"#;

/// JetStream with `sync_interval: always`.
#[derive(Debug)]
pub struct Nats;

impl Engine for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn obstacle(&self) -> Option<String> {
        if !Path::new(PYTHON).exists() {
            return Some(format!("needs {PYTHON}"));
        }
        let (major, minor) = VERSION_MIN;
        server().is_none().then(|| format!("needs nats-server {major}.{minor} or newer"))
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        let server = self.start(place)?;
        for actor in 0..SESSION_COUNT_MAX {
            let stream = json!({
                "name": name(actor), "subjects": [subject(actor)], "storage": "file",
                "allow_direct": true, "max_bytes": 8 << 20,
            });
            let mut connection = Connection::open(place, actor).map_err(|e| e.to_string())?;
            let create = format!("$JS.API.STREAM.CREATE.{}", name(actor));
            connection.ask(&create, &stream.to_string()).map_err(|e| e.to_string())?;
        }
        server.map_or(Ok(()), Server::stop)
    }

    fn start(&self, place: &Place) -> Result<Option<Server>, String> {
        let server = server().ok_or("there is no nats-server")?;
        let config = place.sockets.join("nats.conf");
        let store = place.data.join("jetstream");
        let settings = format!(
            "listen: \"127.0.0.1:-1\"\nlogtime: false\n\
             jetstream {{ store_dir: \"{}\", sync_interval: always, \
             max_mem: 1MB, max_file: 40MB }}\n",
            store.display()
        );
        fs::write(&config, settings).map_err(|e| e.to_string())?;
        let mut starter = place.program(PYTHON);
        starter.args(["-I", "-c", START, server]).arg(config).arg(port_file(place));
        Program::of(starter).serve(SIGNALS, &[]).map(Some)
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Connection::open(place, actor)?))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let count = |actor| Connection::open(place, actor)?.count();
        count_through_server(self, place, session_count, count)
    }

    fn is_torn_page(&self, _failure: &str) -> bool {
        false // It never overwrites a message.
    }
}

/// The server that is new enough.
fn server() -> Option<&'static str> {
    SERVERS.into_iter().find(|path| version(path).is_some_and(|found| found >= VERSION_MIN))
}

/// The version in `nats-server: v2.15.2`.
fn version(path: &str) -> Option<(u32, u32)> {
    let (_, text) = outcome(command(Path::new(path), true).arg("--version")).ok()?;
    let (_, numbers) = text.split_once(": v")?;
    let mut numbers = numbers.split('.').map(|number| number.trim().parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn port_file(place: &Place) -> PathBuf {
    place.sockets.join("port")
}

/// The stream of a session.
fn name(actor: usize) -> String {
    format!("stream{actor}")
}

fn subject(actor: usize) -> String {
    format!("records.{actor}")
}

/// A session: a connection with one subscription, which gets the answers.
struct Connection {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
    actor: usize,
}

impl Connection {
    fn open(place: &Place, actor: usize) -> io::Result<Connection> {
        let port = fs::read_to_string(port_file(place))?;
        let port: u16 = port.trim().parse().map_err(io::Error::other)?;
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.write_all(
            b"CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB answers.*.here 1\r\n",
        )?;
        let lines = BufReader::new(stream.try_clone()?);
        Ok(Connection { stream, lines, actor })
    }

    /// Publishes `payload`, and returns the answer, which is JSON and no error.
    fn ask(&mut self, subject: &str, payload: &str) -> io::Result<Value> {
        let answer: Value = serde_json::from_slice(&self.ask_for_bytes(subject, payload)?)?;
        match answer["error"].is_null() {
            true => Ok(answer),
            false => Err(io::Error::other(format!("NATS answers {}", answer["error"]))),
        }
    }

    /// Publishes `payload`, and returns the answer without its headers.
    fn ask_for_bytes(&mut self, subject: &str, payload: &str) -> io::Result<Vec<u8>> {
        let inbox = format!("answers.{}.here", self.actor);
        let message = format!("PUB {subject} {inbox} {}\r\n{payload}\r\n", payload.len());
        self.stream.write_all(message.as_bytes())?;
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line)?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let (to, headers, all) = match words[..] {
                ["MSG", to, _, all] => (to, "0", all),
                ["HMSG", to, _, headers, all] => (to, headers, all),
                ["PING"] => {
                    self.stream.write_all(b"PONG\r\n")?;
                    continue;
                }
                ["INFO", ..] => continue,
                _ => return Err(io::Error::other(format!("an unexpected line: {line:?}"))),
            };
            let answer = self.payload(headers, all)?;
            if to == inbox {
                return Ok(answer);
            }
        }
    }

    /// Reads `all` bytes, of which the first `headers` are left out, and a line break.
    fn payload(&mut self, headers: &str, all: &str) -> io::Result<Vec<u8>> {
        let [headers, all]: [usize; 2] =
            [headers.parse().map_err(io::Error::other)?, all.parse().map_err(io::Error::other)?];
        let mut payload = vec![0; all + 2];
        self.lines.read_exact(&mut payload)?;
        payload.truncate(all);
        Ok(payload.split_off(headers.min(all)))
    }

    /// Checks and counts the messages of the stream.
    fn count(&mut self) -> io::Result<u64> {
        let name = name(self.actor);
        let state = self.ask(&format!("$JS.API.STREAM.INFO.{name}"), "")?["state"].take();
        let number = |field: &str| state[field].as_u64().unwrap_or_default();
        let mut records = Vec::new();
        for sequence in 1..=number("last_seq") {
            let wanted = json!({ "seq": sequence }).to_string();
            let found = self.ask_for_bytes(&format!("$JS.API.DIRECT.GET.{name}"), &wanted)?;
            records.push(String::from_utf8_lossy(&found).into_owned());
        }
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let total = number("messages").to_string();
        count_records(self.actor, &records, &total).map_err(io::Error::other)
    }
}

impl Session for Connection {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let acknowledged = self.ask(&subject(self.actor), &record(number))?;
        match acknowledged["seq"].as_u64() {
            Some(_) => Ok(()),
            None => Err(io::Error::other(format!("no acknowledgement: {acknowledged}"))),
        }
    }
}
