//! Database engines whose files are on the file system under test.
//!
//! The files of an engine are made once, on a volume or on the kernel's ext4. A run starts the
//! engine's server on them, if it has one, and commits transactions in sessions. Each session
//! counts its transactions, inside the database and outside. After a crash a copy of the files is
//! recovered by the engine, checked by the engine's own tools, and the transactions are counted. A
//! copy is needed because recovery writes.
//!
//! All programs of an engine run as a user who is not root: some servers refuse to run as root.

pub mod etcd;
pub mod innodb;
pub mod lmdb;
pub mod load;
pub mod nats;
pub mod postgres;
pub mod redis;
pub mod rocksdb;

use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use device::sync::Mutex;
use onejournal_testing::Image;
use servers::Child;
use tempfile::TempDir;

use crate::command::{Judge, Program, run, tool};
use crate::rig::{Loop, USER, Volume, command, open_to_all};
use crate::space::{Door, ROOT, Space};

/// The most sessions of a run.
pub const SESSION_COUNT_MAX: usize = 4;
/// Size of a usual disk.
pub const DISK_BYTES: u64 = 96 << 20;
/// The directory of an engine's files.
const DATA: &str = "data";

/// A database engine with its settings.
pub trait Engine: Debug + Sync {
    /// Engines with the same name begin with the same files.
    fn name(&self) -> &'static str;

    /// Size of the disk that its files need.
    fn disk_bytes(&self) -> u64 {
        DISK_BYTES
    }

    /// Why it cannot be run here.
    fn obstacle(&self) -> Option<String>;

    /// Makes the files, with a table for each of [`SESSION_COUNT_MAX`] sessions. The directory
    /// exists and is empty.
    fn make(&self, place: &Place) -> Result<(), String>;

    /// Starts the server. Returns when it is ready. `None`: sessions open the files themselves.
    fn start(&self, _place: &Place) -> Result<Option<Server>, String> {
        Ok(None)
    }

    /// Begins session number `actor`.
    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>>;

    /// Recovers the files, checks all of them, and counts the transactions of each session.
    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String>;

    /// Whether a failure of [`count_all`](Engine::count_all) is a page that the power cut tore.
    fn is_torn_page(&self, failure: &str) -> bool;
}

/// A session of an engine.
pub trait Session: Send {
    /// Commits the transaction of this number.
    fn commit(&mut self, number: u64) -> io::Result<()>;
}

/// Where the files of an engine are.
#[derive(Debug, Clone)]
pub struct Place {
    pub data: PathBuf,
    /// A directory on another file system, for sockets.
    pub sockets: PathBuf,
    /// If the files are in another mount namespace, the way into it.
    door: Option<Door>,
}

impl Place {
    /// On a file system that is mounted at `root`, or at `ROOT` behind `door`.
    pub fn new(root: &Path, door: Option<Door>) -> Place {
        let mounted = if door.is_some() { Path::new(ROOT) } else { root };
        Place { data: mounted.join(DATA), sockets: root.with_extension("sockets"), door }
    }

    /// In a directory with a copy of the files.
    fn of_copy(copy: &Path) -> Place {
        Place { data: copy.join(DATA), sockets: copy.into(), door: None }
    }

    /// Makes the directory for sockets.
    pub fn make_sockets(&self) -> Result<(), String> {
        fs::create_dir(&self.sockets).map_err(|e| e.to_string())?;
        open_to_all(&self.sockets)
    }

    /// A program that can open the files.
    pub fn program(&self, path: impl AsRef<Path>) -> Command {
        let path = path.as_ref();
        let mut program = match self.door {
            Some(door) => door.command_as(path, USER),
            None => command(path, true),
        };
        program.current_dir("/").env("LC_ALL", "C");
        program
    }
}

/// A server; killed when dropped.
pub type Server = Child<Judge>;

/// A client program that reads commands from a pipe, and answers in lines. The end of its input
/// ends it.
pub struct Client(Option<Child<Judge>>);

impl Client {
    /// Starts it.
    pub fn start(client: Command) -> io::Result<Client> {
        Program::of(client).start().map(|client| Client(Some(client))).map_err(io::Error::other)
    }

    /// The lines that it prints before the line `last`.
    pub fn read_until(&mut self, last: &str) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            match self.child().read_line().map_err(io::Error::other)? {
                line if line == last => return Ok(lines),
                line => lines.push(line),
            }
        }
    }

    /// Sends `commands`. The next line of the answer must be `expected`.
    pub fn ask(&mut self, commands: &str, expected: &str) -> io::Result<()> {
        let line = self.child().ask(commands.trim_end()).map_err(io::Error::other)?;
        match line.trim_end() == expected {
            true => Ok(()),
            false => Err(io::Error::other(format!("{expected:?} was expected, not {line:?}"))),
        }
    }

    /// Ends it. An error if it has failed.
    pub fn end(mut self) -> Result<(), String> {
        self.0.take().map_or(Ok(()), |client| client.finish().map(drop))
    }

    fn child(&mut self) -> &mut Child<Judge> {
        self.0.as_mut().expect("it is there until the end")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.take().map(Child::finish);
    }
}

/// A disk with the engine's files, on a volume or on the kernel's ext4. `dir` is used to make it.
pub fn base(
    engine: &dyn Engine,
    is_on_ext4: bool,
    onejournal: &Path,
    dir: &Path,
) -> Result<Image, String> {
    static BASES: Mutex<Vec<(&str, bool, Image)>> = Mutex::new(Vec::new());
    let mut bases = BASES.lock();
    let made = bases.iter().find(|base| (base.0, base.1) == (engine.name(), is_on_ext4));
    if let Some((_, _, image)) = made {
        return Ok(image.clone());
    }
    let file = dir.join("formatted");
    match is_on_ext4 {
        true => make_on_ext4(engine, &file)?,
        false => make_on_volume(engine, onejournal, &file)?,
    }
    let bytes = fs::read(&file).map_err(|e| e.to_string())?;
    fs::remove_file(file).map_err(|e| e.to_string())?;
    let image = Image::from_bytes(&bytes);
    bases.push((engine.name(), is_on_ext4, image.clone()));
    Ok(image)
}

fn make_on_volume(engine: &dyn Engine, onejournal: &Path, file: &Path) -> Result<(), String> {
    let mnt = file.with_extension("mnt");
    let size = format!("{}M", engine.disk_bytes() >> 20);
    run(command(onejournal, false).args(["mkfs", "--size", &size]).arg(file))?;
    fs::create_dir(&mnt).map_err(|e| e.to_string())?;
    let volume = Volume::mount(onejournal, file, &mnt, "", false)?;
    make(engine, &Place::new(&mnt, None), &mnt)?;
    volume.umount()?;
    fs::remove_dir(mnt).map_err(|e| e.to_string())
}

fn make_on_ext4(engine: &dyn Engine, file: &Path) -> Result<(), String> {
    let made = File::create(file).and_then(|made| made.set_len(engine.disk_bytes()));
    made.map_err(|e| e.to_string())?;
    run(tool("mkfs.ext4").args(["-q", "-b", "4096"]).arg(file))?;
    let device = Loop::attach(file, 512, false)?;
    let space = Space::start(&device.path)?;
    make(engine, &Place::new(&file.with_extension("mnt"), Some(space.door())), &space.root())?;
    space.umount()
}

/// Makes the engine's files. `root` is the path at which this process sees the file system.
fn make(engine: &dyn Engine, place: &Place, root: &Path) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    let data = root.join(DATA);
    fs::create_dir(&data).map_err(text)?;
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).map_err(text)?;
    chown(&data, Some(USER), Some(USER)).map_err(text)?;
    place.make_sockets()?;
    engine.make(place)?;
    fs::remove_dir_all(&place.sockets).map_err(text)
}

/// A copy of the engine's files on a file system that is mounted at `root`.
pub fn copy(root: &Path) -> io::Result<TempDir> {
    let copy = tempfile::Builder::new().prefix("onejournal-judge-").tempdir_in("/dev/shm")?;
    fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755))?;
    chown(copy.path(), Some(USER), Some(USER))?;
    copy_dir(&root.join(DATA), &copy.path().join(DATA))?;
    Ok(copy)
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
            chown(&target, Some(USER), Some(USER))?;
        }
    }
    chown(to, Some(USER), Some(USER))
}

/// Recovers and checks the files in the directory `copy`, and counts each session's transactions.
pub fn count_all(
    engine: &dyn Engine,
    copy: &Path,
    session_count: usize,
) -> Result<Vec<u64>, String> {
    engine.count_all(&Place::of_copy(copy), session_count)
}
