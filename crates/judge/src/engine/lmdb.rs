//! LMDB, through Debian's module for Python.
//!
//! There is no server. Each session is a process, and all of them use one environment. A transaction
//! adds a record to the session's table, and counts the records.

use std::io;
use std::process::Command;

use super::load::{count_records, record};
use super::{Answers, Client, Engine, Place, Server, Session};
use crate::command::{outcome, run};

const PYTHON: &str = "/usr/bin/python3";
const MAKE: &str = r#"
import lmdb, sys
environment = lmdb.open(sys.argv[1], map_size=32 << 20, max_dbs=8)
for actor in range(4):
    environment.open_db(b"table%d" % actor)
"#;
/// A line is the number of a record and the record.
const SESSION: &str = r#"
import lmdb, sys
environment = lmdb.open(sys.argv[1], map_size=32 << 20, max_dbs=8)
table = environment.open_db(b"table" + sys.argv[2].encode(), create=False)
for line in sys.stdin:
    number, record = line.split()
    with environment.begin(write=True, db=table) as transaction:
        transaction.put(number.encode().zfill(6), record.encode())
        transaction.put(b"total", number.encode())
    print("done", number, flush=True)
"#;
/// Prints the total, then the records.
const READ: &str = r#"
import lmdb, sys
environment = lmdb.open(sys.argv[1], map_size=32 << 20, max_dbs=8)
table = environment.open_db(b"table" + sys.argv[2].encode(), create=False)
with environment.begin(db=table) as transaction:
    print(transaction.get(b"total", b"").decode())
    for key, record in transaction.cursor():
        if key != b"total":
            print(record.decode())
"#;

/// LMDB with its default durability.
#[derive(Debug)]
pub struct Lmdb;

impl Engine for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn obstacle(&self) -> Option<String> {
        match outcome(Command::new(PYTHON).args(["-I", "-c", "import lmdb"])) {
            Ok((0, _)) => None,
            Ok((_, text)) | Err(text) => Some(format!("needs python3-lmdb: {text}")),
        }
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        run(python(place, MAKE).arg(&place.data)).map(drop)
    }

    fn start(&self, _place: &Place) -> Result<Option<Server>, String> {
        Ok(None)
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        let mut session = python(place, SESSION);
        session.arg(&place.data).arg(actor.to_string());
        Ok(Box::new(Process(Client::start(session, Answers::Output)?)))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        (0..session_count).map(|actor| count(place, actor)).collect()
    }

    fn is_torn_page(&self, _failure: &str) -> bool {
        false // It never overwrites a page that is in use.
    }
}

fn python(place: &Place, script: &str) -> Command {
    let mut python = place.program(PYTHON);
    python.args(["-I", "-c", script]);
    python
}

/// Checks and counts the transactions of a session.
fn count(place: &Place, actor: usize) -> Result<u64, String> {
    let text = run(python(place, READ).arg(&place.data).arg(actor.to_string()))?;
    let mut lines = text.lines();
    let total = lines.next().unwrap_or_default();
    count_records(actor, &lines.collect::<Vec<_>>(), total)
}

/// A session.
struct Process(Client);

impl Session for Process {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let line = format!("{number} {}\n", record(number));
        self.0.ask(&line, &format!("done {number}"))
    }
}
