//! PostgreSQL.
//!
//! A session is a `psql` that reads a pipe. Its transactions are like those of `database`: each
//! adds a row, changes an old one, and updates the count of both. The server's memory and WAL are
//! small, so that it writes pages and makes checkpoints all the time.
//!
//! With `is_untorn` the server does not protect its pages: `full_page_writes` is off, and a torn
//! page has a wrong checksum. Each transaction also changes pages in random places (`load`), and
//! the sessions ask for checkpoints. After a commit the session reads what it has changed: the
//! first reader of a new row marks it as committed, and PostgreSQL logs a whole page for that if
//! checksums are on and the page was not logged since the last checkpoint.

use std::io;
use std::process::Command;

use servers::postgres::{self, program};

use super::load::{Counts, REPEAT_COUNT, ROW_COUNT, changed_rows};
use super::{Client, Engine, Place, SESSION_COUNT_MAX, Server, Session};
use crate::command::{Program, outcome, run};
use crate::rig::{USER, command};

const NAME: &str = "judge";
/// The settings of each server.
const SETTINGS: [&str; 7] = [
    "shared_buffers=1MB",
    "max_connections=12",
    "min_wal_size=2MB",
    "max_wal_size=3MB",
    "checkpoint_timeout=30s",
    "bgwriter_delay=10ms",
    "dynamic_shared_memory_type=sysv",
];
/// A session asks for a checkpoint after so many transactions.
const CHECKPOINT_EVERY: u64 = 12;

/// PostgreSQL with its settings.
#[derive(Debug)]
pub struct Postgres {
    /// Without `full_page_writes`, with data checksums.
    pub is_untorn: bool,
}

/// With its default `fsync` and `full_page_writes`.
pub const USUAL: Postgres = Postgres { is_untorn: false };
/// With `full_page_writes=off` and `initdb --data-checksums`.
pub const UNTORN: Postgres = Postgres { is_untorn: true };

impl Engine for Postgres {
    fn name(&self) -> &'static str {
        if self.is_untorn { "postgres-untorn" } else { "postgres" }
    }

    fn obstacle(&self) -> Option<String> {
        for name in ["initdb", "postgres", "psql", "pg_amcheck", "pg_checksums"] {
            if !program(name).exists() {
                return Some(format!("needs PostgreSQL ({})", program(name).display()));
            }
        }
        match outcome(command(&program("postgres"), true).arg("--version")) {
            Ok((0, _)) => None,
            Ok((_, text)) | Err(text) => Some(format!("user {USER} cannot run PostgreSQL: {text}")),
        }
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        let mut initdb = postgres::initdb(place.program(program("initdb")), NAME, &place.data);
        initdb.args(["--wal-segsize", "1", "--no-sync", "--no-instructions"]);
        if self.is_untorn {
            initdb.arg("--data-checksums");
        }
        run(&mut initdb)?;
        let mut single = place.program(program("postgres"));
        single.args(["--single", "-j", "-c", "exit_on_error=on", "-D"]).arg(&place.data);
        single.arg("postgres");
        let mut single = Program::of(single).start()?;
        single.send(&self.schema())?;
        single.finish().map(drop)
    }

    fn start(&self, place: &Place) -> Result<Option<Server>, String> {
        let server = place.program(program("postgres"));
        let mut server = postgres::postgres(server, &place.data, &place.sockets, &SETTINGS);
        if self.is_untorn {
            server.args(["-c", "full_page_writes=off"]);
        }
        Program::of(server).serve(postgres::SIGNALS, &[]).map(Some)
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        assert!(actor < SESSION_COUNT_MAX, "there are tables for so many sessions only");
        // What `\warn` says is not held back, and so are errors.
        let mut sh = place.program("/bin/sh");
        sh.args(["-c", "exec \"$@\" 2>&1 >/dev/null", "sh"]).arg(program("psql"));
        let client = Client::start(postgres::psql(sh, NAME, &place.sockets))?;
        Ok(Box::new(Sql { client, actor, is_untorn: self.is_untorn }))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let server = self.start(place)?;
        let counts = (0..session_count).map(|actor| self.count(place, actor));
        let counts = counts.collect::<Result<_, _>>()?;
        let mut amcheck = place.program(program("pg_amcheck"));
        amcheck.args(["-U", NAME, "-d", "postgres", "--heapallindexed", "--parent-check", "-h"]);
        run(amcheck.arg(&place.sockets))?;
        server.map_or(Ok(()), Server::stop)?;
        if self.is_untorn {
            // It reads the pages of a cluster that was stopped in order only.
            run(place.program(program("pg_checksums")).args(["--check", "-D"]).arg(&place.data))?;
        }
        Ok(counts)
    }

    fn is_torn_page(&self, failure: &str) -> bool {
        ["page verification failed", "invalid page in block", "checksum verification failed"]
            .iter()
            .any(|message| failure.contains(message))
    }
}

fn psql(place: &Place) -> Command {
    postgres::psql(place.program(program("psql")), NAME, &place.sockets)
}

impl Postgres {
    /// The schema. In a single-user server an empty line ends a statement.
    fn schema(&self) -> String {
        let mut statements = vec!["create extension amcheck;".to_owned()];
        for actor in 0..SESSION_COUNT_MAX {
            statements.push(format!(
                "create table t{actor}(k bigint primary key, changes bigint not null, v text);"
            ));
            statements.push(format!("create table total{actor}(rows bigint, changes bigint);"));
            statements.push(format!("insert into total{actor} values(0, 0);"));
            if self.is_untorn {
                statements.extend(wide_table(actor));
            }
        }
        statements.iter().map(|statement| format!("{statement}\n\n")).collect()
    }

    /// Checks and counts the transactions of a session.
    fn count(&self, place: &Place, actor: usize) -> Result<u64, String> {
        let counts = run(psql(place).arg("--command").arg(format!(
            "select rows, changes, (select count(*) from t{actor}), \
             (select coalesce(sum(changes), 0) from t{actor}),
             (select coalesce(max(k), 0) from t{actor}), \
             (select count(*) from t{actor} where v is null) from total{actor}"
        )))?;
        let wide = self.is_untorn.then(|| {
            run(psql(place).arg("--command").arg(format!(
                "select count(*), sum(version), count(*) filter (where
                 mark <> md5(k || ':' || version) or filler <> repeat(mark, {REPEAT_COUNT})) \
                 from wide{actor}"
            )))
        });
        let wide = wide.transpose()?;
        Counts { actor, counts: &counts, wide: wide.as_deref() }.transaction_count()
    }
}

/// The table whose pages are changed in random places.
fn wide_table(actor: usize) -> [String; 4] {
    [
        format!(
            "create table wide{actor}(k int primary key, version int not null, mark text not null, \
             filler text not null);"
        ),
        format!(
            "insert into wide{actor} select k, 0, md5(k || ':0'), \
             repeat(md5(k || ':0'), {REPEAT_COUNT}) from generate_series(1, {ROW_COUNT}) k;"
        ),
        format!("create index on wide{actor}(mark);"),
        format!("vacuum (freeze, analyze) wide{actor};"),
    ]
}

/// A session.
struct Sql {
    client: Client,
    actor: usize,
    is_untorn: bool,
}

impl Session for Sql {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(number);
        let (size, changed) = ([1, 20, 300][rng.usize(..3)], rng.u64(1..=number));
        let actor = self.actor;
        let (mut more, mut after) = (String::new(), String::new());
        if self.is_untorn {
            let rows = changed_rows(actor, number);
            more = format!(
                "update wide{actor} set version = version + 1, \
                 mark = md5(k || ':' || (version + 1)),
                 filler = repeat(md5(k || ':' || (version + 1)), {REPEAT_COUNT}) \
                 where k in ({rows});"
            );
            after = format!("select version from wide{actor} where k in ({rows});\n");
            if number % CHECKPOINT_EVERY == actor as u64 * CHECKPOINT_EVERY / 4 {
                after += "checkpoint;\n";
            }
        }
        let commands = format!(
            "begin;\n\
             insert into t{actor} select {number}, 0, string_agg(md5((i * {number})::text), '') \
             from generate_series(1, {size}) i;\n\
             update t{actor} set changes = changes + 1 where k = {changed};\n\
             {more}\n\
             update total{actor} set rows = rows + 1, changes = changes + 1;\n\
             commit;\n\
             \\warn done {number}\n\
             {after}"
        );
        self.client.ask(&commands, &format!("done {number}"))
    }
}
