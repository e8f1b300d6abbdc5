//! A read-only look at a log's directory from outside: takes no lock, joins nothing, changes
//! nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::{Durability, file_system_durability};
use host::{Access, Folder, Trust};

use crate::directory::served::last_socket;
use crate::host::Settings;
use crate::media::files::{at, parse, within};
use crate::stream_name::StreamName;
use crate::{LogError, Result};

/// Most names in the directory of the streams that are looked at. A log makes fewer.
const NAME_COUNT_MAX: usize = 100_000;
/// Most names in the directories of all streams.
const FILE_COUNT_MAX: usize = 1 << 20;
/// Most streams that are named. The others are counted only.
const NAMED_COUNT_MAX: usize = 200;
/// Longest path that is kept, in bytes. The kernel takes no longer one.
const PATH_BYTES_MAX: usize = 4096;

/// What a log's directory says about itself. It takes at most 64 KiB, whatever another user has put
/// into the directory.
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
    /// The streams.
    pub streams: StreamsFound,
}

/// The streams of a log, as its directory shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamsFound {
    /// How many there are.
    pub count: usize,
    /// Bytes of all their log files.
    pub file_bytes: u64,
    /// The first ones by name, at most 200, each with the bytes of its log files.
    pub named: Vec<(String, u64)>,
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
        let socket = last_socket(root)?;
        check_length(root, "daemon", socket.as_deref())?;
        check_length(root, SETTINGS, settings.nvram.as_deref())?;
        check_length(root, SETTINGS, Some(settings.uuid.as_ref()))?;
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
            socket,
            durability,
            pool_bytes: settings.pool_bytes(),
            streams: StreamsFound::within(root)?,
            uuid: settings.uuid,
            nvram: settings.nvram,
        })
    }
}

/// An error if the text that the file `name` has is longer than any path.
fn check_length(root: &Folder, name: &str, text: Option<&Path>) -> Result<()> {
    match text.map_or(0, |text| text.as_os_str().len()) {
        0..=PATH_BYTES_MAX => Ok(()),
        len_bytes => {
            let why = format!("names a path of {len_bytes} bytes, and no path is so long");
            Err(LogError::Incompatible(format!("{}: {why}", root.at(name).display())))
        }
    }
}

impl StreamsFound {
    /// The streams of the log in `root`. A stream that is made or removed at the same time may be
    /// missing.
    fn within(root: &Folder) -> Result<StreamsFound> {
        const STREAMS: &str = "streams";
        let folder = root.folder(STREAMS).map_err(within(root, STREAMS))?;
        let mut all = StreamsFound::default();
        let mut named = BTreeMap::new();
        let mut left = FILE_COUNT_MAX;
        let counted = folder.each_name(NAME_COUNT_MAX, |name| {
            let bytes = file_bytes(&folder, name, &mut left);
            if left == 0 {
                let why = format!("has more than {FILE_COUNT_MAX} names in its directories");
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
            }
            let Some(bytes) = bytes else { return Ok(()) };
            all.count += 1;
            all.file_bytes = all.file_bytes.saturating_add(bytes);
            named.insert(name.to_owned(), bytes);
            if named.len() > NAMED_COUNT_MAX {
                named.pop_last();
            }
            Ok(())
        });
        counted.map_err(within(root, STREAMS))?;
        Ok(StreamsFound { named: named.into_iter().collect(), ..all })
    }
}

/// The bytes of a stream's log files. `None`: it is no stream, or `left` more names are not enough.
fn file_bytes(streams: &Folder, name: &str, left: &mut usize) -> Option<u64> {
    name.parse::<StreamName>().ok()?;
    let stream = streams.folder(name).ok()?;
    stream.stat("stream.json").ok()??;
    let mut bytes = 0_u64;
    let read = stream.each_name(*left, |file| {
        *left -= 1;
        if file.ends_with(".seg") {
            let found = stream.stat(file)?;
            let size = found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0));
            bytes = bytes.saturating_add(size);
        }
        Ok(())
    });
    read.ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, Options};

    fn own() -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    /// A log that is closed: the directories that it needs, its path, and its options.
    fn closed_log() -> ([tempfile::TempDir; 2], PathBuf, Options) {
        let directory = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let path = directory.path().join("log");
        let options = Options { memory: memory.path().into(), ..Options::default() };
        Log::open(&path, &options).expect("open").close().expect("close");
        ([directory, memory], path, options)
    }

    #[test]
    fn a_log_in_use_is_looked_at_and_left_alone() {
        let directory = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let path = directory.path().join("log");
        let own = own();
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
        let named = vec![("one".to_string(), file_bytes)];
        assert_eq!(look.streams, StreamsFound { count: 1, file_bytes, named });
        assert!(before > 0 && file_bytes > 0);
        drop(stream);
        log.close().expect("close");
        let closed = Look::at(&path, own).expect("nobody uses it now");
        assert_eq!(closed.streams.count, 1);
        std::fs::write(path.join("daemon"), "/run/socket").expect("written");
        let served = Look::at(&path, own).expect("look");
        assert_eq!(served.socket.as_deref(), Some(Path::new("/run/socket")));
    }

    #[test]
    fn regression_a_pipe_or_a_long_file_in_a_log_is_refused_at_once() {
        let (_dirs, path, options) = closed_log();
        let own = own();
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

    #[test]
    fn regression_a_log_filled_with_names_is_kept_in_bounds() {
        const COUNT: usize = 1000;
        let (_dirs, path, _) = closed_log();
        let own = own();
        let name = |number: usize| format!("{number:0>128}");
        for number in 0..COUNT {
            let stream = path.join("streams").join(name(number));
            std::fs::create_dir(&stream).expect("made");
            std::fs::write(stream.join("stream.json"), "").expect("written");
            std::fs::write(stream.join("0.seg"), "12345").expect("written");
        }
        // No stream has such a name.
        let other = path.join("streams").join("0".repeat(200));
        std::fs::create_dir(&other).expect("made");
        std::fs::write(other.join("stream.json"), "").expect("written");
        let StreamsFound { count, file_bytes, named } = Look::at(&path, own).expect("look").streams;
        assert_eq!((count, file_bytes, named.len()), (COUNT, 5 * COUNT as u64, NAMED_COUNT_MAX));
        assert!(named.iter().enumerate().all(|(at, found)| *found == (name(at), 5)));
        std::fs::write(path.join("daemon"), "/s".repeat(10_000)).expect("written");
        let refused = Look::at(&path, own).expect_err("no path").to_string();
        assert!(refused.contains("names a path of 20000 bytes"), "{refused}");
    }
}
