//! A file that is replaced by rename, again and again, without a sync before and while the new file
//! is still open. After a crash it has the whole content of one of the files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::history::Survivor;

/// Each such file is synced after it got its name.
const SYNCED_EACH: u64 = 5;
/// So many of the newest files stay open.
const OPEN_COUNT: usize = 6;
const LONGEST_BYTES: u64 = 150_000;

/// The directory of an actor.
pub fn dir(root: &Path, actor: usize) -> PathBuf {
    root.join(format!("replaced{actor}"))
}

/// Whether this step ends with a sync.
pub fn is_synced(number: u64) -> bool {
    number.is_multiple_of(SYNCED_EACH)
}

fn content(number: u64) -> Vec<u8> {
    let words = (number * 7919 % LONGEST_BYTES) / 8;
    let word = |place: u64| (number << 32 | place).to_le_bytes();
    (0..=words).flat_map(word).collect()
}

/// An actor at work.
pub struct Replacer {
    dir: PathBuf,
    open: Vec<File>,
}

impl Replacer {
    /// Makes what it begins with.
    pub fn make(dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().create(dir)?;
        let mut file = File::create(dir.join("f"))?;
        file.write_all(&content(0))?;
        file.sync_all()?;
        File::open(dir)?.sync_all()
    }

    /// Goes on in this directory.
    pub fn new(dir: PathBuf) -> Replacer {
        Replacer { dir, open: Vec::new() }
    }

    /// The next content takes the name.
    pub fn replace(&mut self, number: u64) -> io::Result<()> {
        let new = self.dir.join("new");
        let mut file = File::create(&new)?;
        file.write_all(&content(number))?;
        fs::rename(new, self.dir.join("f"))?;
        if is_synced(number) {
            file.sync_all()?;
        }
        self.open.push(file);
        if self.open.len() > OPEN_COUNT {
            self.open.remove(0);
        }
        Ok(())
    }
}

/// What is found after a crash.
pub fn read(dir: &Path) -> Result<Survivor, String> {
    let path = dir.join("f");
    let found = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let first = found.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes) >> 32);
    match first {
        Some(number) if found == content(number) => Ok(Survivor::Count(number)),
        Some(number) => Err(format!("{}: a part of number {number} only", path.display())),
        None => Err(format!("{}: {} bytes", path.display(), found.len())),
    }
}
