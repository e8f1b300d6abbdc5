//! MariaDB and MySQL, with tables of InnoDB.
//!
//! A session is a client program that reads a pipe. It has the transactions of PostgreSQL's
//! sessions (`postgres`, `load`). The server does not protect its pages: `innodb_doublewrite` is
//! off, and a torn page has a wrong checksum. Its pages have 16 KiB. Its log and memory are small,
//! and it may keep no changed pages, so that it writes pages in place all the time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use servers::SIGNALS;
use servers::mariadb::{INSTALL, mariadb, mariadbd, option};

use super::load::{Counts, REPEAT_COUNT, ROW_COUNT, changed_rows};
use super::{Client, DISK_BYTES, Engine, Place, SESSION_COUNT_MAX, Server, Session};
use crate::command::{Program, outcome, run};
use crate::rig::{USER, command};

const CHECKSUM: &str = "/usr/bin/innochecksum";
/// The database, and the directory of its tables.
const NAME: &str = "judge";
/// Settings that the files are made with. `innochecksum` refuses the pages of the doublewrite
/// buffer of MariaDB, so it is never made.
const FORMAT: [&str; 6] = [
    "--innodb-doublewrite=OFF",
    "--innodb-page-size=16384",
    "--innodb-data-file-path=ibdata1:5M:autoextend",
    "--innodb-autoextend-increment=1",
    "--innodb-buffer-pool-size=6M",
    "--innodb-use-native-aio=OFF",
];
/// More settings of each server.
const SETTINGS: [&str; 6] = [
    "--performance-schema=OFF",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-flush-neighbors=0",
    "--innodb-max-dirty-pages-pct=0",
    "--innodb-max-dirty-pages-pct-lwm=0",
    "--innodb-io-capacity=2000",
];
/// A session asks that all changed pages of its tables are written after so many transactions.
const EXPORT_EVERY: u64 = 12;

/// What a server and `innochecksum` say of a page with a wrong checksum.
const TORN: [&str; 6] = [
    "corrupted page",
    "of corrupted file",
    "Checksum mismatch in datafile",
    "Page read from tablespace is corrupted",
    "page corruption",
    "Fail: page",
];

/// A server without `innodb_doublewrite`.
#[derive(Debug)]
pub struct InnoDb {
    name: &'static str,
    product: &'static str,
    server: &'static str,
    client: &'static str,
    /// The program that makes the files, and its arguments.
    install: (&'static str, &'static [&'static str]),
    /// Settings beside [`FORMAT`] and [`SETTINGS`].
    own_settings: &'static [&'static str],
    /// Files with pages that are not in the directory of the database.
    page_files: &'static [&'static str],
    disk_bytes: u64,
    /// When the server has said one of these, its recovery never ends.
    endless: &'static [&'static str],
}

/// Since version 11 there are three undo tablespaces of 10 MiB without the setting.
pub const MARIADB: InnoDb = InnoDb {
    name: "mariadb",
    product: "MariaDB",
    server: "/usr/sbin/mariadbd",
    client: "/usr/bin/mariadb",
    install: ("/usr/bin/mariadb-install-db", &INSTALL),
    own_settings: &[
        "--innodb-log-file-size=4M",
        "--innodb-undo-tablespaces=0",
        "--innodb-temp-data-file-path=ibtmp1:5M:autoextend",
    ],
    page_files: &["ibdata1"],
    disk_bytes: DISK_BYTES,
    endless: &[],
};

/// Its smallest redo log has 8 MiB. Its files have 76 MiB without the tables of the sessions.
pub const MYSQL: InnoDb = InnoDb {
    name: "mysql",
    product: "MySQL",
    server: "/usr/sbin/mysqld",
    client: "/usr/bin/mysql",
    install: ("/usr/sbin/mysqld", &["--no-defaults", "--initialize-insecure"]),
    own_settings: &[
        "--innodb-redo-log-capacity=8M",
        "--loose-mysqlx=OFF",
        "--secure-file-priv=NULL",
    ],
    page_files: &["ibdata1", "mysql.ibd", "undo_001", "undo_002"],
    disk_bytes: 256 << 20,
    endless: &["page corruption"],
};

impl Engine for InnoDb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    fn obstacle(&self) -> Option<String> {
        let product = self.product;
        let programs = [self.server, self.client, self.install.0, CHECKSUM];
        if let Some(missing) = programs.iter().find(|path| !Path::new(path).exists()) {
            return Some(format!("needs {product} ({missing})"));
        }
        match outcome(command(Path::new(self.server), true).args(["--no-defaults", "--version"])) {
            // MariaDB installs itself under MySQL's names, too.
            Ok((0, text)) if text.contains("MariaDB") == (product == "MariaDB") => None,
            Ok((0, text)) => Some(format!("needs {product}, not {text}")),
            Ok((_, text)) | Err(text) => Some(format!("user {USER} cannot run {product}: {text}")),
        }
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        let mut install = place.program(self.install.0);
        install.args(self.install.1).args(FORMAT).args(self.own_settings);
        run(install.arg(option("datadir", &place.data)))?;
        let server = self.start(place)?;
        run(self.client(place).arg("--execute").arg(schema()))?;
        server.map_or(Ok(()), Server::stop)
    }

    fn start(&self, place: &Place) -> Result<Option<Server>, String> {
        let mut server = mariadbd(place.program(self.server), &place.data, &place.sockets);
        server.args(FORMAT).args(SETTINGS).args(self.own_settings);
        Program::of(server).serve(SIGNALS, self.endless).map(Some)
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        assert!(actor < SESSION_COUNT_MAX, "there are tables for so many sessions only");
        let mut client = self.client(place);
        client.arg("--unbuffered").arg(NAME);
        Ok(Box::new(Sql { client: Client::start(client)?, actor }))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let server = self.start(place)?;
        self.check_tables(place)?;
        let counts = (0..session_count).map(|actor| self.count(place, actor));
        let counts = counts.collect::<Result<_, _>>()?;
        server.map_or(Ok(()), Server::stop)?;
        self.check_pages(place)?;
        Ok(counts)
    }

    fn is_torn_page(&self, failure: &str) -> bool {
        TORN.iter().any(|message| failure.contains(message))
    }
}

impl InnoDb {
    fn client(&self, place: &Place) -> Command {
        let mut client = mariadb(place.program(self.client), &place.sockets);
        client.arg("--skip-reconnect");
        client
    }

    /// `CHECK TABLE` of all tables.
    fn check_tables(&self, place: &Place) -> Result<(), String> {
        let names = ["t", "total", "wide"].into_iter();
        let names =
            names.flat_map(|table| (0..SESSION_COUNT_MAX).map(move |n| format!("{table}{n}")));
        let names: Vec<String> = names.collect();
        let check = format!("check table {} extended", names.join(", "));
        let found = run(self.client(place).arg(NAME).arg("--execute").arg(check))?;
        let is_ok = |line: &str| line.ends_with("\tcheck\tstatus\tOK");
        if found.lines().filter(|line| is_ok(line)).count() == names.len() {
            Ok(())
        } else {
            Err(format!("CHECK TABLE: {found}"))
        }
    }

    /// `innochecksum` of all files with pages. The server has ended.
    fn check_pages(&self, place: &Place) -> Result<(), String> {
        let text = |e: io::Error| e.to_string();
        let of_server = self.page_files.iter().map(|name| place.data.join(name));
        let mut files: Vec<PathBuf> = of_server.collect();
        for entry in fs::read_dir(place.data.join(NAME)).map_err(text)? {
            let path = entry.map_err(text)?.path();
            if path.extension().is_some_and(|extension| extension == "ibd") {
                files.push(path);
            }
        }
        files.iter().try_for_each(|file| run(place.program(CHECKSUM).arg(file)).map(drop))
    }

    /// Checks and counts the transactions of a session.
    fn count(&self, place: &Place, actor: usize) -> Result<u64, String> {
        let ask = |query: String| run(self.client(place).arg(NAME).arg("--execute").arg(query));
        let counts = ask(format!(
            "select concat_ws('|', transactions, total{actor}.changes,
                 (select count(*) from t{actor}),
                 (select coalesce(sum(changes), 0) from t{actor}),
                 (select coalesce(max(k), 0) from t{actor}),
                 (select count(*) from t{actor} where v is null)) from total{actor}"
        ))?;
        let wide = ask(format!(
            "select concat_ws('|', count(*), sum(version),
                 sum(mark <> md5(concat(k, ':', version))
                     or filler <> repeat(mark, {REPEAT_COUNT}))) from wide{actor}"
        ))?;
        Counts { actor, counts: &counts, wide: Some(&wide) }.transaction_count()
    }
}

fn schema() -> String {
    let mut statements = vec![format!("create database {NAME}; use {NAME};")];
    for actor in 0..SESSION_COUNT_MAX {
        statements.push(format!(
            "create table t{actor}(k bigint primary key, changes bigint not null, v mediumtext) \
             engine=innodb;
             create table total{actor}(k int primary key, transactions bigint, changes bigint) \
             engine=innodb;
             insert into total{actor} values(1, 0, 0);
             create table wide{actor}(k int primary key, version int not null, \
             mark char(32) not null,
                 filler varchar(2000) not null, key(mark)) engine=innodb character set latin1;
             insert into wide{actor}
                 select n, 0, md5(concat(n, ':0')), repeat(md5(concat(n, ':0')), {REPEAT_COUNT})
                 from (with recursive digits(d) as
                         (select 0 union all select d + 1 from digits where d < 99)
                     select 1 + low.d + 100 * high.d as n from digits low, digits high) numbers
                 where n <= {ROW_COUNT} order by n;"
        ));
    }
    statements.concat()
}

/// A session.
struct Sql {
    client: Client,
    actor: usize,
}

impl Session for Sql {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(number);
        let (size, changed) = ([32, 640, 9600][rng.usize(..3)] / 32, rng.u64(1..=number));
        let actor = self.actor;
        let rows = changed_rows(actor, number);
        let after = match number % EXPORT_EVERY == actor as u64 * EXPORT_EVERY / 4 {
            true => format!("flush tables t{actor}, wide{actor} for export; unlock tables;\n"),
            false => String::new(),
        };
        // MySQL's assignments see the assignments before them.
        let commands = format!(
            "begin;\n\
             insert into t{actor} values({number}, 0, repeat(md5({number}), {size}));\n\
             update t{actor} set changes = changes + 1 where k = {changed};\n\
             update wide{actor} set version = version + 1, mark = md5(concat(k, ':', version)),
                 filler = repeat(mark, {REPEAT_COUNT}) where k in ({rows});\n\
             update total{actor} set transactions = transactions + 1, changes = changes + 1;\n\
             commit;\n\
             select 'done {number}';\n\
             {after}"
        );
        self.client.ask(&commands, &format!("done {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_page_is_distinguished_from_other_failures() {
        for text in [
            "[ERROR] InnoDB: Unable to apply log to corrupted page 9 in file ./judge/wide0.ibd",
            "InnoDB: Cannot apply log to [page id: space=11, page number=0] of corrupted file \
             './judge/t2.ibd'",
            "InnoDB: Checksum mismatch in datafile: ./ibdata1, Space ID: 0, Flags: 21",
            "innochecksum ended with 1: Fail: page::64 invalid",
            "[MY-011906] [InnoDB] Database page corruption on disk or a failed file read of page \
             [page id: space=9, page number=4].",
        ] {
            assert!(MARIADB.is_torn_page(text), "{text}");
        }
        for text in ["[ERROR] Aborting", "actor 0: a part of a transaction: 3|3|2|3|3|0"] {
            assert!(!MARIADB.is_torn_page(text), "{text}");
        }
    }
}
