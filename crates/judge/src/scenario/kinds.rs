//! The kinds of runs.

use crate::engine::etcd::Etcd;
use crate::engine::innodb::{MARIADB, MYSQL};
use crate::engine::lmdb::Lmdb;
use crate::engine::nats::Nats;
use crate::engine::redis::Redis;
use crate::engine::rocksdb::RocksDb;
use crate::engine::{Engine, postgres};

use super::{Actor, Attach, Database, Hosted, JournalPlace, LogPlace, Promise, Scenario, Store};

const fn database(
    journal_mode: &'static str,
    synchronous: &'static str,
    vfs: &'static str,
) -> Database {
    Database {
        journal_mode,
        synchronous,
        vfs,
        is_durable: true,
        cache_pages: 2000,
        is_shrinking: false,
    }
}

const DELETE_EXTRA: Database = database("delete", "extra", "unix");
const DELETE_FULL: Database = Database { is_durable: false, ..database("delete", "full", "unix") };
const TRUNCATE: Database = database("truncate", "full", "unix");
const PERSIST: Database = database("persist", "full", "unix");
const WAL: Database = database("wal", "full", "unix");
const WAL_EXTRA: Database = database("wal", "extra", "unix");
/// Commits of these are not synced.
const WAL_NORMAL: Database = Database { is_durable: false, ..database("wal", "normal", "unix") };
const WAL_OFF: Database = Database { is_durable: false, ..database("wal", "off", "unix") };
const DELETE_OFF: Database = Database { is_durable: false, ..database("delete", "off", "unix") };
/// With `-o atomic_writes` a transaction is an atomic write.
const BATCH: Database = database("delete", "full", "unix");
const BATCH_PERSIST: Database = database("persist", "full", "unix");
const OUR_DELETE: Database = database("delete", "extra", "onejournal");
const OUR_TRUNCATE: Database = database("truncate", "full", "onejournal");
const OUR_PERSIST: Database = database("persist", "full", "onejournal");
const OUR_WAL: Database = database("wal", "full", "onejournal");
/// Through the extension and its log these are durable, because a transaction is a record that is
/// synced.
const OUR_DELETE_FULL: Database = database("delete", "full", "onejournal");
const OUR_SHRINKING: Database = Database { is_shrinking: true, ..OUR_DELETE };
const OUR_SHRINKING_PERSIST: Database = Database { is_shrinking: true, ..OUR_PERSIST };
const OUR_SPILLING: Database = Database { cache_pages: 10, ..OUR_DELETE };

const LEVELDB: Store = Store { plugin: "leveldb", has_log: true, is_honest: true };
const ROCKSDB: Store = Store { plugin: "rocksdb", ..LEVELDB };
const PLAIN_LEVELDB: Store = Store { has_log: false, ..LEVELDB };
const LAZY_LEVELDB: Store = Store { is_honest: false, ..LEVELDB };

const USUAL: Scenario = Scenario {
    name: "",
    options: "order=history",
    attach: Attach::Loop(512),
    promise: Promise::History,
    actors: &[Actor::Tree],
    journal: JournalPlace::Volume,
    by_user: false,
    is_killed: false,
    hosted: None,
    engine: None,
    is_on_ext4: false,
};

/// The kernel collects writes.
const CACHED: Scenario = Scenario { options: "order=sync", promise: Promise::Cached, ..USUAL };

const fn hosted(log: LogPlace, is_one_process: bool) -> Scenario {
    let hosted = Some(Hosted { log, is_one_process, is_contained: false });
    Scenario { promise: Promise::Each, hosted, ..USUAL }
}

const CONTAINERS: Hosted =
    Hosted { log: LogPlace::Daemon, is_one_process: false, is_contained: true };

/// The syncs of the first one commit what the others have written so far.
const UNSYNCED: &[Actor] = &[
    Actor::Database(&WAL),
    Actor::Database(&WAL_NORMAL),
    Actor::Database(&WAL_NORMAL),
    Actor::Database(&WAL_OFF),
    Actor::Database(&DELETE_OFF),
];

const SESSIONS: &[Actor] = &[Actor::Session, Actor::Session, Actor::Session];

/// Sessions of a database engine on a volume.
const fn engine(engine: &'static dyn Engine) -> Scenario {
    Scenario { actors: SESSIONS, engine: Some(engine), ..USUAL }
}

/// All scenarios in which every image must pass.
pub const SCENARIOS: [Scenario; 54] = [
    Scenario { name: "tree", actors: &[Actor::Tree, Actor::Tree], ..USUAL },
    Scenario {
        name: "writers",
        actors: &[Actor::Plain, Actor::Plain, Actor::Plain, Actor::Tree],
        ..USUAL
    },
    Scenario {
        name: "dsync",
        actors: &[Actor::Dsync, Actor::Sync, Actor::Plain, Actor::Tree],
        ..USUAL
    },
    Scenario {
        name: "moved",
        actors: &[Actor::Mover, Actor::Mover, Actor::Plain, Actor::Replacer],
        ..USUAL
    },
    Scenario { name: "sector-4096", attach: Attach::Loop(4096), ..USUAL },
    Scenario { name: "file", attach: Attach::File, actors: &[Actor::Tree, Actor::Plain], ..USUAL },
    Scenario { name: "mapped", actors: &[Actor::Mapped, Actor::Tree], ..USUAL },
    Scenario { name: "uring", actors: &[Actor::Uring, Actor::Uring, Actor::Plain], ..USUAL },
    Scenario { name: "delta", options: "data=delta,order=history", ..USUAL },
    Scenario {
        name: "journal",
        options: "data=journal,order=history",
        actors: &[Actor::Tree, Actor::Plain],
        ..USUAL
    },
    Scenario { name: "wasteless", options: "data=wasteless,order=history", ..USUAL },
    Scenario {
        name: "ordered",
        options: "data=ordered,order=history",
        promise: Promise::InPlace,
        actors: &[Actor::Tree, Actor::Plain, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "selective",
        options: "data=selective,threshold=3000,order=history",
        promise: Promise::InPlace,
        actors: &[Actor::Tree, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "cached",
        actors: &[Actor::Tree, Actor::Plain, Actor::Mapped, Actor::Replacer],
        ..CACHED
    },
    Scenario {
        name: "cached-dsync",
        actors: &[Actor::Dsync, Actor::Sync, Actor::Plain, Actor::Mover],
        ..CACHED
    },
    Scenario {
        name: "cached-uring",
        actors: &[Actor::Uring, Actor::Uring, Actor::Plain, Actor::Tree],
        ..CACHED
    },
    Scenario {
        name: "cached-file",
        attach: Attach::File,
        actors: &[Actor::Tree, Actor::Plain, Actor::Replacer],
        ..CACHED
    },
    Scenario {
        name: "cached-ordered",
        options: "data=ordered,order=sync",
        actors: &[Actor::Tree, Actor::Plain, Actor::Mapped, Actor::Replacer],
        ..CACHED
    },
    Scenario {
        name: "cached-second-disk",
        journal: JournalPlace::SecondDisk,
        actors: &[Actor::Tree, Actor::Plain, Actor::Replacer],
        ..CACHED
    },
    Scenario {
        name: "cached-sqlite",
        actors: &[
            Actor::Database(&DELETE_EXTRA),
            Actor::Database(&DELETE_FULL),
            Actor::Database(&PERSIST),
            Actor::Database(&WAL),
            Actor::Tree,
        ],
        ..CACHED
    },
    Scenario {
        name: "cached-extension",
        actors: &[
            Actor::Database(&OUR_DELETE),
            Actor::Database(&OUR_TRUNCATE),
            Actor::Database(&OUR_PERSIST),
            Actor::Database(&OUR_WAL),
        ],
        ..CACHED
    },
    Scenario {
        name: "second-disk",
        journal: JournalPlace::SecondDisk,
        actors: &[Actor::Tree, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "user",
        attach: Attach::File,
        by_user: true,
        actors: &[Actor::Tree, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "sqlite-rollback",
        actors: &[
            Actor::Database(&DELETE_EXTRA),
            Actor::Database(&DELETE_FULL),
            Actor::Database(&TRUNCATE),
            Actor::Database(&PERSIST),
        ],
        ..USUAL
    },
    Scenario {
        name: "sqlite-wal",
        actors: &[Actor::Database(&WAL), Actor::Database(&WAL_EXTRA), Actor::Tree],
        ..USUAL
    },
    Scenario { name: "sqlite-unsynced", actors: UNSYNCED, ..USUAL },
    Scenario {
        name: "sqlite-atomic",
        options: "atomic_writes",
        actors: &[Actor::Database(&BATCH), Actor::Database(&BATCH_PERSIST), Actor::Database(&WAL)],
        ..USUAL
    },
    Scenario {
        name: "sqlite-extension",
        actors: &[
            Actor::Database(&OUR_DELETE),
            Actor::Database(&OUR_TRUNCATE),
            Actor::Database(&OUR_PERSIST),
            Actor::Database(&OUR_WAL),
        ],
        ..USUAL
    },
    Scenario {
        name: "sqlite-extension-journals",
        actors: &[
            Actor::Database(&OUR_SHRINKING),
            Actor::Database(&OUR_SHRINKING_PERSIST),
            Actor::Database(&OUR_SPILLING),
        ],
        ..USUAL
    },
    Scenario { name: "killed", is_killed: true, actors: &[Actor::Tree, Actor::Dsync], ..USUAL },
    Scenario {
        name: "regions",
        options: "regions=2,delta=xor-lzo,checkpoint=early,order=history",
        actors: &[Actor::Tree, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "nvram",
        journal: JournalPlace::Nvram,
        actors: &[Actor::Tree, Actor::Tree, Actor::Mover, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "nvram-writers",
        journal: JournalPlace::Nvram,
        actors: &[Actor::Plain, Actor::Plain, Actor::Dsync, Actor::Sync, Actor::Tree],
        ..USUAL
    },
    Scenario {
        name: "nvram-mapped",
        journal: JournalPlace::Nvram,
        actors: &[Actor::Mapped, Actor::Uring, Actor::Dsync, Actor::Tree],
        ..USUAL
    },
    Scenario {
        name: "nvram-cached",
        journal: JournalPlace::Nvram,
        actors: &[Actor::Tree, Actor::Plain, Actor::Mapped, Actor::Replacer],
        ..CACHED
    },
    Scenario {
        name: "log-sqlite",
        actors: &[
            Actor::Database(&OUR_WAL),
            Actor::Database(&OUR_DELETE_FULL),
            Actor::Database(&OUR_SPILLING),
        ],
        ..hosted(LogPlace::Beside, true)
    },
    Scenario {
        name: "log-sqlite-processes",
        actors: &[
            Actor::Together(&OUR_WAL),
            Actor::Together(&OUR_WAL),
            Actor::Database(&OUR_WAL),
            Actor::Database(&OUR_DELETE_FULL),
            Actor::Database(&OUR_PERSIST),
        ],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario {
        name: "log-sqlite-daemon",
        actors: &[
            Actor::Together(&OUR_DELETE_FULL),
            Actor::Together(&OUR_DELETE_FULL),
            Actor::Database(&OUR_WAL),
            Actor::Database(&OUR_TRUNCATE),
        ],
        ..hosted(LogPlace::Daemon, false)
    },
    Scenario {
        name: "logd",
        actors: &[Actor::Stream, Actor::Stream, Actor::Stream],
        ..hosted(LogPlace::Daemon, false)
    },
    Scenario {
        name: "logd-containers",
        actors: &[Actor::Stream, Actor::Stream, Actor::Stream],
        hosted: Some(CONTAINERS),
        ..hosted(LogPlace::Daemon, false)
    },
    Scenario {
        name: "log",
        actors: &[Actor::Stream, Actor::Stream, Actor::Stream],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario {
        name: "log-leveldb",
        actors: &[Actor::Store(&LEVELDB), Actor::Store(&LEVELDB), Actor::Store(&LEVELDB)],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario {
        name: "log-rocksdb",
        actors: &[Actor::Store(&ROCKSDB), Actor::Store(&ROCKSDB)],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario {
        name: "log-plugins-daemon",
        actors: &[Actor::Store(&LEVELDB), Actor::Store(&ROCKSDB)],
        ..hosted(LogPlace::Daemon, false)
    },
    Scenario { name: "postgres", ..engine(&postgres::USUAL) },
    Scenario {
        name: "cached-postgres",
        actors: SESSIONS,
        engine: Some(&postgres::USUAL),
        ..CACHED
    },
    Scenario { name: "postgres-untorn", ..engine(&postgres::UNTORN) },
    Scenario { name: "mariadb-untorn", ..engine(&MARIADB) },
    Scenario { name: "mysql-untorn", ..engine(&MYSQL) },
    Scenario { name: "redis", ..engine(&Redis) },
    Scenario { name: "etcd", ..engine(&Etcd) },
    Scenario { name: "lmdb", ..engine(&Lmdb) },
    Scenario { name: "rocksdb", ..engine(&RocksDb) },
    Scenario { name: "nats", ..engine(&Nats) },
];

/// Scenarios whose mounts do not promise what the judge expects. The load of an engine is strong
/// enough if torn pages are found in these, and the other loads if anything wrong is found.
pub const CANARIES: [Scenario; 9] = [
    Scenario {
        name: "postgres-untorn-ordered",
        options: "data=ordered,order=history",
        ..engine(&postgres::UNTORN)
    },
    Scenario { name: "postgres-untorn-ext4", is_on_ext4: true, ..engine(&postgres::UNTORN) },
    Scenario {
        name: "mariadb-untorn-ordered",
        options: "data=ordered,order=history",
        ..engine(&MARIADB)
    },
    Scenario { name: "mariadb-untorn-ext4", is_on_ext4: true, ..engine(&MARIADB) },
    Scenario {
        name: "mysql-untorn-ordered",
        options: "data=ordered,order=history",
        ..engine(&MYSQL)
    },
    Scenario { name: "mysql-untorn-ext4", is_on_ext4: true, ..engine(&MYSQL) },
    Scenario {
        name: "leveldb-plain",
        actors: &[
            Actor::Store(&PLAIN_LEVELDB),
            Actor::Store(&PLAIN_LEVELDB),
            Actor::Store(&PLAIN_LEVELDB),
        ],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario {
        name: "log-leveldb-lazy",
        actors: &[Actor::Store(&LAZY_LEVELDB)],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario { name: "sqlite-unsynced-cached", options: "order=sync", actors: UNSYNCED, ..USUAL },
];
