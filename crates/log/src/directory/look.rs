//! A read-only look at a log's directory from outside: takes no lock, joins nothing, changes
//! nothing.

use std::path::{Path, PathBuf};

use device::{Access, Durability, Folder, Trust, file_system_durability};

use crate::directory::served::last_socket;
use crate::host::Settings;
use crate::media::files::{at, parse, within};
use crate::{LogError, Result};

/// Most names in a directory of the log that are looked at. A log makes fewer.
const NAME_COUNT_MAX: usize = 100_000;

/// What a log's directory says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Names the service.
    pub uuid: String,
    /// The user to whom the directory belongs. A daemon there is a process of this user.
    pub owner: u32,
    /// Where the daemon listens that served the directory last.
    pub socket: Option<PathBuf>,
    /// What a synced append survives.
    pub durability: Durability,
    /// Directory on NVRAM that holds the lanes.
    pub nvram: Option<PathBuf>,
    /// Size of the pool in bytes.
    pub pool_bytes: u64,
    /// The streams, sorted, each with the bytes its log files take.
    pub streams: Vec<(String, u64)>,
}

impl Look {
    /// Looks at the log in `path`. Its files are believed if they belong to this process's user or
    /// to `uid`, `gid`, as for a process that opens the log.
    ///
    /// # Errors
    /// If `path` is no log's directory, or if another user could have prepared it.
    pub fn at(path: &Path, (uid, gid): (u32, u32)) -> Result<Look> {
        Look::of(&Folder::open(path, Trust::own_and(uid, gid)).map_err(at(path))?)
    }

    /// The same for a path that stands in a file of that user.
    ///
    /// # Errors
    /// As [`Look::at`], and if a link of another user, or a file system that a user serves, is on
    /// the way.
    pub fn found(path: &Path, (uid, gid): (u32, u32)) -> Result<Look> {
        Look::of(&Folder::found(path, Trust::own_and(uid, gid)).map_err(at(path))?)
    }

    fn of(root: &Folder) -> Result<Look> {
        const SETTINGS: &str = "service.json";
        const GROUP: &str = "group.log";
        let path = root.path();
        let text = root.read(SETTINGS).map_err(within(root, SETTINGS))?;
        let none = || LogError::NotFound(format!("{} is no directory of a log", path.display()));
        let settings: Settings = parse(&root.at(SETTINGS), &text.ok_or_else(none)?)?;
        let durability = match (&settings.nvram, &settings.durability) {
            (None, _) => {
                let group = root.file(GROUP, Access::ReadOnly).map_err(within(root, GROUP))?;
                file_system_durability(&group)
            }
            (Some(_), None) => Durability::Power,
            (Some(_), Some(name)) => {
                let unknown = || LogError::Incompatible(format!("durability {name} is not known"));
                Durability::from_name(name).ok_or_else(unknown)?
            }
        };
        Ok(Look {
            owner: root.owner(),
            socket: last_socket(root)?,
            durability,
            pool_bytes: settings.pool_bytes(),
            streams: streams_in(root)?,
            uuid: settings.uuid,
            nvram: settings.nvram,
        })
    }
}

/// The streams with the bytes of their log files. A stream that is made or removed at the same time
/// may be missing.
fn streams_in(root: &Folder) -> Result<Vec<(String, u64)>> {
    const STREAMS: &str = "streams";
    let folder = root.folder(STREAMS).map_err(within(root, STREAMS))?;
    let mut names = folder.names_up_to(NAME_COUNT_MAX).map_err(within(root, STREAMS))?;
    names.sort_unstable();
    let len_bytes = |name: &str| {
        let stream = folder.folder(name).ok()?;
        stream.stat("stream.json").ok()??;
        let files = stream
            .names_up_to(NAME_COUNT_MAX)
            .ok()?
            .into_iter()
            .filter(|file| file.ends_with(".seg"));
        let sizes = files.filter_map(|file| stream.stat(&file).ok().flatten());
        let sizes = sizes.map(|found| u64::try_from(found.st_size).unwrap_or(0));
        Some(sizes.fold(0, u64::saturating_add))
    };
    Ok(names.into_iter().filter_map(|name| len_bytes(&name).map(|bytes| (name, bytes))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, Options};

    #[test]
    fn a_log_in_use_is_looked_at_and_left_alone() {
        let directory = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let path = directory.path().join("log");
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert!(matches!(Look::at(&path, own), Err(LogError::System { .. })));
        assert!(matches!(Look::at(directory.path(), own), Err(LogError::NotFound(_))));
        let options = Options { memory: memory.path().into(), ..Options::default() };
        let log = Log::open(&path, &options).expect("open");
        let stream = log.stream("one").expect("stream");
        stream.append(b"record").expect("append");
        stream.flush().expect("flush");
        let before = log.stat().drain_count;
        let look = Look::at(&path, own).expect("look");
        assert_eq!((look.uuid.as_str(), look.pool_bytes), (log.uuid(), 64 << 20));
        assert_eq!((look.durability, look.nvram), (log.durability(), None));
        assert_eq!((look.owner, look.socket), (own.0, None));
        let file_bytes = stream.stat().expect("stat").file_bytes;
        assert_eq!(look.streams, [("one".to_string(), file_bytes)]);
        assert!(before > 0 && file_bytes > 0);
        drop(stream);
        log.close().expect("close");
        let closed = Look::at(&path, own).expect("nobody uses it now");
        assert_eq!(closed.streams.len(), 1);
        std::fs::write(path.join("daemon"), "/run/socket").expect("written");
        let served = Look::at(&path, own).expect("look");
        assert_eq!(served.socket.as_deref(), Some(Path::new("/run/socket")));
    }

    #[test]
    fn regression_a_pipe_or_a_long_file_in_a_log_is_refused_at_once() {
        let directory = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let path = directory.path().join("log");
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let options = Options { memory: memory.path().into(), ..Options::default() };
        Log::open(&path, &options).expect("open").close().expect("close");
        let refusal = || Look::at(&path, own).expect_err("refused").to_string();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path.join("daemon"), kind, mode, 0).expect("made");
        assert!(refusal().contains("no regular file"));
        std::fs::remove_file(path.join("daemon")).expect("removed");
        let settings = std::fs::File::options().write(true).open(path.join("service.json"));
        settings.expect("open").set_len(3 << 30).expect("length");
        assert!(refusal().contains("service.json: has more than 65536 bytes"));
        let refused = Log::open(&path, &options).err().expect("refused").to_string();
        assert!(refused.contains("has more than 65536 bytes"), "{refused}");
    }
}
