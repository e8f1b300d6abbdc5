//! The kinds of runs: how a volume is made and mounted, and which actors use it.

/// What a volume is mounted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// A loop device with sectors of this many bytes, on the emulated disk.
    Loop(u32),
    /// The emulated disk itself, as an image file.
    File,
}

/// What a crash may leave of the contents of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// They are part of the history: a whole state of it.
    History,
    /// Names, sizes and attributes are a state of the history. Each byte is that of some version
    /// since the last sync of the file.
    InPlace,
    /// The same, but sizes are as old as the contents: the kernel sends both in its own order.
    Cached,
    /// What each actor finds is a state of its own history. The order between two actors is not
    /// promised.
    Each,
}

/// Actors that use the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// All kinds of operations in a directory of its own.
    Tree,
    /// Files that are synced after a directory above them was renamed, in a directory of its own.
    Mover,
    /// Records in a file that it shares with the other actors of this kind. It syncs the file from
    /// time to time.
    Plain,
    /// The same file, opened with `O_DSYNC`.
    Dsync,
    /// The same file, opened with `O_SYNC`.
    Sync,
    /// The same file, durable writes through io_uring.
    Uring,
    /// A file that is replaced by rename while the new one is open and was not synced.
    Replacer,
    /// A database of SQLite in a directory of its own; a step is a transaction.
    Database(&'static Database),
    /// A table of its own in a database that all actors of this kind share.
    Together(&'static Database),
    /// Records appended to a stream of the log service.
    Stream,
    /// A session of PostgreSQL, with a table of its own; a step is a transaction.
    Postgres,
    /// Records in a file of its own, stored through a shared mapping; `msync`.
    Mapped,
}

/// How a database is opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Database {
    /// `PRAGMA journal_mode`.
    pub journal_mode: &'static str,
    /// `PRAGMA synchronous`.
    pub synchronous: &'static str,
    /// SQLite's VFS.
    pub vfs: &'static str,
    /// Whether a commit that has returned is durable. In mode DELETE only EXTRA promises that, or
    /// an atomic write.
    pub is_durable: bool,
    /// Pages that SQLite keeps in memory. A transaction that needs more writes pages before it
    /// commits, and so uses a rollback journal.
    pub cache_pages: u32,
    /// Whether some transactions make the file shorter. On a volume the extension writes a journal for
    /// these.
    pub is_shrinking: bool,
}

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

impl Actor {
    /// Whether it writes to the file that several actors share.
    pub fn shares_file(self) -> bool {
        !self.has_tree() && !self.counts() && !matches!(self, Actor::Mapped)
    }

    /// Whether its state is the number of its transactions or records.
    pub fn counts(self) -> bool {
        matches!(
            self,
            Actor::Replacer
                | Actor::Database(_)
                | Actor::Together(_)
                | Actor::Stream
                | Actor::Postgres
        )
    }

    /// Whether it has a directory of its own.
    pub fn has_tree(self) -> bool {
        matches!(self, Actor::Tree | Actor::Mover)
    }
}

/// The place of the log for programs on the kernel's ext4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPlace {
    /// Beside each database.
    Beside,
    /// One directory for all of them.
    Directory,
    /// The same, served by `onejournal logd`.
    Daemon,
}

/// Programs that use the log service on the kernel's ext4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosted {
    pub log: LogPlace,
    /// Whether all actors are threads of one process. Otherwise each is a process.
    pub is_one_process: bool,
}

/// A kind of run.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// `-o` of the mount.
    pub options: &'static str,
    pub attach: Attach,
    pub promise: Promise,
    pub actors: &'static [Actor],
    /// The journal is on a disk of its own.
    pub second_disk: bool,
    /// The journal is on NVRAM, and the volume is served in this process: without `options`, except `order=`.
    pub nvram: bool,
    /// Mounted, used and unmounted by a user who is not root.
    pub by_user: bool,
    /// Whether the daemon is killed in the middle, and the volume mounted again.
    pub is_killed: bool,
    /// The disk has the kernel's ext4 instead of a volume. The actors are programs that use the log
    /// service.
    pub hosted: Option<Hosted>,
}

const USUAL: Scenario = Scenario {
    name: "",
    options: "order=history",
    attach: Attach::Loop(512),
    promise: Promise::History,
    actors: &[Actor::Tree],
    second_disk: false,
    nvram: false,
    by_user: false,
    is_killed: false,
    hosted: None,
};

/// The kernel collects writes.
const CACHED: Scenario = Scenario { options: "order=sync", promise: Promise::Cached, ..USUAL };

const fn hosted(log: LogPlace, is_one_process: bool) -> Scenario {
    let hosted = Some(Hosted { log, is_one_process });
    Scenario { promise: Promise::Each, hosted, ..USUAL }
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 41] = [
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
        second_disk: true,
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
        second_disk: true,
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
        options: "regions=2,delta=xor-lzo,order=history",
        actors: &[Actor::Tree, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "nvram",
        nvram: true,
        actors: &[Actor::Tree, Actor::Tree, Actor::Mover, Actor::Plain],
        ..USUAL
    },
    Scenario {
        name: "nvram-writers",
        nvram: true,
        actors: &[Actor::Plain, Actor::Plain, Actor::Dsync, Actor::Sync, Actor::Tree],
        ..USUAL
    },
    Scenario {
        name: "nvram-mapped",
        nvram: true,
        actors: &[Actor::Mapped, Actor::Uring, Actor::Dsync, Actor::Tree],
        ..USUAL
    },
    Scenario {
        name: "nvram-cached",
        nvram: true,
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
        name: "log",
        actors: &[Actor::Stream, Actor::Stream, Actor::Stream],
        ..hosted(LogPlace::Directory, false)
    },
    Scenario {
        name: "postgres",
        actors: &[Actor::Postgres, Actor::Postgres, Actor::Postgres],
        ..USUAL
    },
    Scenario {
        name: "cached-postgres",
        actors: &[Actor::Postgres, Actor::Postgres, Actor::Postgres],
        ..CACHED
    },
];

impl Scenario {
    /// The scenario with this name.
    pub fn named(name: &str) -> Result<&'static Scenario, String> {
        SCENARIOS.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
            let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            format!("no scenario {name}; there are {}", names.join(", "))
        })
    }

    /// Whether PostgreSQL runs on the volume.
    pub fn has_server(&self) -> bool {
        self.actors.contains(&Actor::Postgres)
    }

    /// Whether nothing has to be made before the first step.
    pub fn begins_empty(&self) -> bool {
        self.actors.iter().all(|actor| *actor == Actor::Stream)
    }

    /// `sync` reaches the volume.
    pub fn has_sync(&self) -> bool {
        !self.by_user && !self.nvram
    }

    /// Whether recoveries by commands can be recorded. With a journal on NVRAM they cannot, because
    /// stores of commands are not seen.
    pub fn has_commands(&self) -> bool {
        !self.nvram && self.hosted.is_none()
    }

    /// The number of actors that share a file.
    pub fn sharing_count(&self) -> usize {
        self.actors.iter().filter(|actor| actor.shares_file()).count()
    }
}
