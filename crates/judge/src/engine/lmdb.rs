//! LMDB, through Debian's module for Python.
//!
//! There is no server. Each session is a process, and all of them use one environment. A
//! transaction adds a record to the session's table, and counts the records.

use std::io;
use std::process::Command;

use super::load::{Program, count_printed};
use super::{Engine, Place, Session};
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

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        let mut session = python(place, SESSION);
        session.arg(&place.data).arg(actor.to_string());
        Program::start(session)
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let count = |actor: usize| {
            count_printed(actor, python(place, READ).arg(&place.data).arg(actor.to_string()))
        };
        (0..session_count).map(count).collect()
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
