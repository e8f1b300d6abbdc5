//! What a kind of run is: how a volume is made and mounted, and which actors use it.

mod kinds;

use onejournal_testing::are_syncs_told;

use crate::engine::Engine;

pub use kinds::{CANARIES, SCENARIOS};

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
    /// Records in a LevelDB or RocksDB database of its own.
    Store(&'static Store),
    /// A session of the scenario's database engine, with tables of its own; a step is a
    /// transaction.
    Session,
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
    /// Whether some transactions make the file shorter. On a volume the extension writes a journal
    /// for these.
    pub is_shrinking: bool,
}

/// How a LevelDB or RocksDB database is written.
#[derive(Debug, PartialEq, Eq)]
pub struct Store {
    /// The folder of its plug-in.
    pub plugin: &'static str,
    /// Whether it is opened with the plug-in.
    pub has_log: bool,
    /// Whether it syncs what it says to be synced.
    pub is_honest: bool,
}

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
                | Actor::Store(_)
                | Actor::Session
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
    /// Whether each process is in a container that shares only the daemon's socket with others.
    pub is_contained: bool,
}

/// The place of a volume's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalPlace {
    Volume,
    /// A disk of its own.
    SecondDisk,
    /// NVRAM. The volume is served in this process: without `options`, except `order=`.
    Nvram,
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
    pub journal: JournalPlace,
    /// Mounted, used and unmounted by a user who is not root.
    pub by_user: bool,
    /// Whether the daemon is killed in the middle, and the volume mounted again.
    pub is_killed: bool,
    /// The disk has the kernel's ext4 instead of a volume. The actors are programs that use the log
    /// service.
    pub hosted: Option<Hosted>,
    /// The database engine that the sessions use.
    pub engine: Option<&'static dyn Engine>,
    /// The engine's files are on the kernel's ext4 instead of a volume.
    pub is_on_ext4: bool,
}

impl Scenario {
    /// The scenario with this name.
    pub fn named(name: &str) -> Result<&'static Scenario, String> {
        let all = || SCENARIOS.iter().chain(&CANARIES);
        all().find(|scenario| scenario.name == name).ok_or_else(|| {
            let names: Vec<_> = all().map(|scenario| scenario.name).collect();
            format!("no scenario {name}; there are {}", names.join(", "))
        })
    }

    /// Whether the journal is on NVRAM.
    pub fn has_nvram(&self) -> bool {
        self.journal == JournalPlace::Nvram
    }

    /// Whether failures are expected.
    pub fn is_canary(&self) -> bool {
        CANARIES.iter().any(|canary| canary.name == self.name)
    }

    /// Whether the first disk has the kernel's ext4 instead of a volume.
    pub fn has_kernel_ext4(&self) -> bool {
        self.hosted.is_some() || self.is_on_ext4
    }

    /// Whether its programs are in containers.
    pub fn is_contained(&self) -> bool {
        self.hosted.is_some_and(|hosted| hosted.is_contained)
    }

    /// Whether nothing has to be made before the first step.
    pub fn begins_empty(&self) -> bool {
        self.actors.iter().all(|actor| *actor == Actor::Stream)
    }

    /// `sync` reaches the volume. So a run is judged and replayed on a kernel like that on which it
    /// was recorded.
    pub fn has_sync(&self) -> bool {
        !self.by_user && !self.has_nvram() && are_syncs_told()
    }

    /// Whether there are recoveries by commands that can be recorded. With a journal on NVRAM they
    /// cannot, because stores of commands are not seen.
    pub fn has_commands(&self) -> bool {
        !self.has_nvram() && !self.has_kernel_ext4()
    }

    /// The number of actors that share a file.
    pub fn sharing_count(&self) -> usize {
        self.actors.iter().filter(|actor| actor.shares_file()).count()
    }
}
