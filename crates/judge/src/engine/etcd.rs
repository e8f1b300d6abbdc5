//! etcd, a single member of a cluster.
//!
//! Each transaction is an `etcdctl txn`, which adds a key and counts the keys. The server makes
//! snapshots all the time, and then deletes old files.

use std::io;
use std::path::Path;
use std::process::Command;

use servers::SIGNALS;
use servers::etcd::etcd;

use super::load::{count_records, record};
use super::{Engine, Place, Server, Session};
use crate::command::{Program, run};

const SERVER: &str = "/usr/bin/etcd";
const CLIENT: &str = "/usr/bin/etcdctl";
/// Sockets in the current directory have such names.
const CLIENTS: &str = "unix://localhost:1";
const PEERS: &str = "unix://localhost:2";

/// etcd with its default durability.
#[derive(Debug)]
pub struct Etcd;

impl Engine for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn disk_bytes(&self) -> u64 {
        256 << 20 // It allocates two files of 64 MB for its log.
    }

    fn obstacle(&self) -> Option<String> {
        let missing = [SERVER, CLIENT].into_iter().find(|path| !Path::new(path).exists());
        missing.map(|path| format!("needs etcd ({path})"))
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        self.start(place)?.map_or(Ok(()), Server::stop)
    }

    fn start(&self, place: &Place) -> Result<Option<Server>, String> {
        let data = place.data.join("etcd");
        let mut server = etcd(place.program(SERVER), &data, [CLIENTS, PEERS]);
        server.current_dir(&place.sockets).args(["--log-level", "warn"]);
        server.args(["--snapshot-count", "50", "--max-wals", "1", "--max-snapshots", "1"]);
        Program::of(server).serve(SIGNALS, &[]).map(Some)
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Transactions { place: place.clone(), actor }))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let server = self.start(place)?;
        let counts = (0..session_count).map(|actor| count(place, actor));
        let counts = counts.collect::<Result<_, _>>()?;
        // It reads the whole database and writes its checksum, which the second command checks.
        let snapshot = place.sockets.join("snapshot");
        run(client(place).args(["snapshot", "save"]).arg(&snapshot))?;
        run(client(place).args(["snapshot", "status"]).arg(&snapshot))?;
        server.map_or(Ok(()), Server::stop)?;
        Ok(counts)
    }

    fn is_torn_page(&self, _failure: &str) -> bool {
        false // It never overwrites a page that is in use.
    }
}

fn client(place: &Place) -> Command {
    let mut client = place.program(CLIENT);
    client.current_dir(&place.sockets).env("ETCDCTL_API", "3");
    client.args(["--endpoints", CLIENTS]);
    client
}

fn values(place: &Place, arguments: &[&str]) -> Result<String, String> {
    run(client(place).args(["get", "--print-value-only"]).args(arguments))
}

/// Checks and counts the transactions of a session.
fn count(place: &Place, actor: usize) -> Result<u64, String> {
    let records = values(place, &["--prefix", &format!("record{actor}/")])?;
    let total = values(place, &[&format!("total{actor}")])?;
    count_records(actor, &records.lines().collect::<Vec<_>>(), &total)
}

/// A session.
struct Transactions {
    place: Place,
    actor: usize,
}

impl Session for Transactions {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let mut client = client(&self.place);
        client.arg("txn");
        let (actor, record) = (self.actor, record(number));
        // No conditions, what is done, and what is done otherwise.
        let puts = format!("put record{actor}/{number:06} {record}\nput total{actor} {number}");
        let transact = || {
            let mut client = Program::of(client).start()?;
            client.send(&format!("\n{puts}\n\n"))?;
            client.finish()
        };
        let answer = transact().map_err(io::Error::other)?;
        match answer.first().is_some_and(|line| line.starts_with("SUCCESS")) {
            true => Ok(()),
            false => Err(io::Error::other(format!("etcdctl says {answer:?}"))),
        }
    }
}
