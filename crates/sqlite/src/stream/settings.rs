//! Where a database's log is, from its URI and the environment.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use device::Durability;
use host::{Folder, Trust, cached_kind};
use log::{LogError, Options};
use rustix::fs::FileType;

use crate::failure::{Failure, is_of_system};
use crate::messages;

/// Name of the log's directory beside the database.
const DIRECTORY: &str = ".onejournal";
/// Most streams of a log that are looked at. A log makes fewer.
const NAME_COUNT_MAX: usize = 100_000;
/// Environment variable that names the log for all databases.
const VARIABLE: &str = "ONEJOURNAL_LOG";

/// The settings in the database's URI and in the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The log's directory, or the socket of the daemon that serves it.
    pub directory: PathBuf,
    is_socket: bool,
    origin: Origin,
    nvram: Option<PathBuf>,
    durability: Option<Durability>,
    memory: Option<PathBuf>,
    /// Whether to give up logged changes that cannot be written to the database
    /// (`recover=discard`).
    pub may_discard: bool,
    /// User and group of the database, if they are not this process's own. The log may belong to
    /// that user, too.
    pub owner: Option<(u32, u32)>,
}

/// Who names the log of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The log is in the default place, beside the database.
    Beside,
    /// The URI or the environment. Or the attribute of the database names the default place.
    Named,
    /// The attribute of the database, and neither the URI nor the environment.
    Attribute,
}

impl Settings {
    /// The settings of the database at `path`. `parameter` returns the value of a URI parameter.
    pub fn new(
        path: &Path,
        parameter: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, Failure> {
        let wrong = |name: &str, value: &str, good: &str| {
            Failure::CannotOpen(format!("{name}={value} is not known: it can be {good}"))
        };
        let beside = || Settings::beside(path);
        let named = parameter("log")
            .or_else(|| std::env::var(VARIABLE).ok())
            .filter(|value| !value.is_empty());
        let nvram = parameter("nvram").map(PathBuf::from);
        let is_given = named.is_some();
        let is_named = is_given || nvram.is_some();
        let origin = if is_named { Origin::Named } else { Origin::Beside };
        // A link beside the database may be another user's trap; a link that is named is followed.
        let directory = match named {
            Some(named) => real_path(Path::new(&named)),
            None => in_real_parent(&beside()),
        };
        let is_socket = log::names_socket(&directory);
        if is_given && !is_socket && is_socket_file(&directory) {
            let good = "a directory, or a socket that is named socket, NAME.sock or NAME.socket";
            return Err(wrong("log", &directory.display().to_string(), good));
        }
        let missing = |name: &str, value: &Path, parent: &Path| {
            let (value, parent) = (value.display(), parent.display());
            Failure::CannotOpen(format!("{name}={value}: there is no directory {parent}"))
        };
        if let Some(parent) =
            directory.parent().filter(|it| is_named && !is_socket && !is_directory(it))
        {
            return Err(missing("log", &directory, parent));
        }
        if let Some(nvram) = nvram.as_ref().filter(|nvram| !is_directory(nvram)) {
            return Err(missing("nvram", nvram, nvram));
        }
        let known = |name: String| {
            let unknown = || wrong("durability", &name, "power, reboot or process");
            Durability::from_name(&name).ok_or_else(unknown)
        };
        let durability = parameter("durability").map(known).transpose()?;
        let may_discard = match parameter("recover").as_deref() {
            None => false,
            Some("discard") => true,
            Some(other) => return Err(wrong("recover", other, "discard")),
        };
        let settings = Settings {
            directory,
            is_socket,
            origin,
            nvram,
            durability,
            memory: parameter("memory").map(PathBuf::from),
            may_discard,
            owner: None,
        };
        // Also where no log is opened now: on a volume, or one that this process has open.
        options(&settings).check()?;
        Ok(settings)
    }

    /// The directory of a log that lies beside the database at `path`.
    pub fn beside(path: &Path) -> PathBuf {
        path.parent().unwrap_or(Path::new("/")).join(DIRECTORY)
    }

    /// The same settings for another log that exists, at `directory`, as the attribute of the
    /// database at `path` says.
    pub fn elsewhere(&self, directory: &Path, path: &Path) -> Settings {
        let is_socket = log::names_socket(directory);
        let (nvram, durability) = (None, None);
        let directory = directory.to_owned();
        // A program that names the database names the directory beside it, too.
        let is_beside = directory == Settings::beside(path);
        let origin = if is_beside { Origin::Named } else { Origin::Attribute };
        Settings { directory, is_socket, origin, nvram, durability, ..self.clone() }
    }

    /// Whether the URI, the environment or the attribute of the database names the log.
    pub fn is_named(&self) -> bool {
        self.origin != Origin::Beside
    }

    /// Whether only the attribute of the database names the log.
    pub fn is_found(&self) -> bool {
        self.origin == Origin::Attribute
    }

    /// Whether something that may be used is where an attribute says that the log is.
    pub fn is_there(&self) -> std::io::Result<bool> {
        match self.trust().find(&self.directory) {
            Ok(_) => Ok(true),
            Err(e) if is_of_system(&e) => Err(e),
            Err(_) => Ok(false),
        }
    }

    /// The UUID of a log that an attribute names, if its directory is there and this user can look.
    /// With a daemon, this is an error.
    pub fn uuid(&self) -> Result<String, Failure> {
        let user = self.owner.unwrap_or_else(|| {
            let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
            (uid.as_raw(), gid.as_raw())
        });
        let look = if self.is_found() { log::Look::found } else { log::Look::at };
        Ok(look(&self.directory, user)?.uuid)
    }

    /// The names of the log's streams, without opening it. Refuses a log that another user could
    /// have prepared.
    pub fn stream_names(&self) -> std::io::Result<Vec<String>> {
        let root = Folder::open(&self.directory, self.trust());
        match root.and_then(|root| root.folder("streams")) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            streams => streams?.names_up_to(NAME_COUNT_MAX),
        }
    }

    /// Whether a daemon serves the log.
    pub fn is_socket(&self) -> bool {
        self.is_socket
    }

    /// Whether the log exists already. With a daemon, it does. What another user has mounted in its
    /// place counts as a log, which will be refused: it is not asked, because it may never answer.
    pub fn exists(&self) -> bool {
        self.is_socket || self.trust().may_hold(&self.directory, "service.json")
    }

    /// The users whose log is trusted.
    fn trust(&self) -> Trust {
        self.owner.map_or(Trust::own(), |(uid, gid)| Trust::own_and(uid, gid))
    }

    /// Refuses a log that another user made or could have changed, before it is used. Also refuses
    /// to make a log that the database's owner could not use.
    pub(crate) fn check_owner(&self) -> Result<(), Failure> {
        if self.is_socket {
            return Ok(());
        }
        let refusal = match Folder::open(&self.directory, self.trust()) {
            Ok(_) => return Ok(()),
            Err(e) => e,
        };
        let is_missing = refusal.kind() == ErrorKind::NotFound;
        match self.foreign_owner() {
            None if is_missing => Ok(()),
            Some(_) if is_missing && self.is_named() => Ok(()),
            None => Err(log::system_at(&self.directory, refusal).into()),
            Some(uid) => {
                let refusal = LogError::system(self.directory.display().to_string(), refusal);
                Err(Failure::CannotOpen(messages::of_several_users(&refusal, uid)))
            }
        }
    }

    /// The database's owner, if this process runs as another user, who is not root.
    fn foreign_owner(&self) -> Option<u32> {
        let me = rustix::process::geteuid();
        self.owner.map(|(uid, _)| uid).filter(|uid| *uid != me.as_raw() && !me.is_root())
    }
}

/// The path without symbolic links, as far as it exists. So a log has one path, however it is
/// named.
fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| in_real_parent(path))
}

/// The same, but for the last part, which may be a link.
fn in_real_parent(path: &Path) -> PathBuf {
    let parent =
        path.parent().map(|it| if it.as_os_str().is_empty() { Path::new(".") } else { it });
    match (parent.map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Whether there is a socket, as far as the kernel knows without asking a file system.
fn is_socket_file(path: &Path) -> bool {
    cached_kind(path) == Ok(FileType::Socket)
}

/// Whether there is such a directory. A relative path begins at the working directory.
fn is_directory(path: &Path) -> bool {
    path.as_os_str().is_empty() || cached_kind(path) == Ok(FileType::Directory)
}

/// Bytes of the group log beside a database. A larger group log is drained less often, and each
/// drain costs one sync for each stream. A smaller one takes less space on the disk.
const GROUP_BYTES: u64 = 4 << 20;

/// The options with which a log is made.
pub(crate) fn options(settings: &Settings) -> Options {
    let mut options = Options {
        nvram: settings.nvram.clone(),
        durability: settings.durability,
        owner: settings.owner,
        is_found: settings.is_found(),
        group_bytes: GROUP_BYTES,
        ..Options::default()
    };
    if let Some(memory) = &settings.memory {
        options.memory = memory.clone();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &str, given: &[(&str, &str)]) -> Result<Settings, Failure> {
        let find = |name: &str| {
            given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        Settings::new(Path::new(path), find)
    }

    #[test]
    fn regression_names_of_streams_are_not_read_through_a_link() {
        let home = tempfile::tempdir().expect("directory");
        let database = home.path().join("app.db");
        let settings = settings(database.to_str().expect("text"), &[]).expect("good");
        assert_eq!(settings.stream_names().expect("none"), [""; 0]);
        std::fs::create_dir(&settings.directory).expect("made");
        assert_eq!(settings.stream_names().expect("none"), [""; 0]);
        let elsewhere = home.path().join("elsewhere");
        std::fs::create_dir_all(elsewhere.join("one")).expect("made");
        let streams = settings.directory.join("streams");
        std::os::unix::fs::symlink(&elsewhere, &streams).expect("linked");
        settings.stream_names().expect_err("a link");
        std::fs::remove_file(&streams).expect("removed");
        std::fs::rename(&elsewhere, &streams).expect("renamed");
        assert_eq!(settings.stream_names().expect("names"), ["one"]);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&streams, open).expect("opened");
        settings.stream_names().expect_err("others can write it");
    }

    #[test]
    fn the_log_is_in_the_directory_of_the_database_unless_told() {
        let beside = settings("/a/app.db", &[]).expect("good");
        assert_eq!(beside.directory, Path::new("/a/.onejournal"));
        for (log, is_socket) in [("/l", false), ("/l/socket", true), ("/l.sock", true)] {
            let told = settings("/a/app.db", &[("log", log)]).expect("good");
            assert_eq!((told.is_socket, told.exists()), (is_socket, is_socket), "{log}");
        }
        assert!(settings("/a", &[("durability", "maybe")]).is_err());
        assert!(settings("/a", &[("recover", "please")]).is_err());
        for log in ["/l", "/l/socket"] {
            let alone = settings("/a", &[("log", log), ("durability", "process")]);
            let told = alone.expect_err("no NVRAM").to_string();
            assert!(told.contains("nvram=DIR"), "{told}");
        }
    }
}
