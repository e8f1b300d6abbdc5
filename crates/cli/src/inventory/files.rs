//! The files of a volume with the most bytes written, and their names.
//!
//! The mount counts by inode. A name comes from the open files of programs, which `/proc` shows, or
//! from the volume's directories, of which a limited number is read. Both show only what this user
//! may see.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::counters::read_attribute;
use crate::process_looks::{Finding, ProcessLooks};

/// The most directory entries that one search reads.
const ENTRY_LIMIT: usize = 20_000;
/// How long the search among open files may take.
const OPEN_LIMIT: Duration = Duration::from_millis(500);
/// A name that was not found is searched for again after this time.
const SEARCH_EVERY: Duration = Duration::from_secs(30);

/// Counters of a file, as `user.onejournal.files` has them.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct FileCounters {
    pub ino: u64,
    pub app_bytes: u64,
    pub fsyncs: u64,
    pub journal_bytes: u64,
    pub in_place_bytes: u64,
    pub home_bytes: u64,
    pub write_amplification: Option<f64>,
    /// Path below the volume's root.
    pub name: Option<String>,
}

/// The counters of the files. Empty if they cannot be read, for example because the volume was
/// unmounted.
pub fn files_of(dir: &Path, names: &mut FileNames) -> Vec<FileCounters> {
    let text = read_attribute(dir, mount::FILES_XATTR).unwrap_or_default();
    let mut files: Vec<FileCounters> = serde_json::from_str(&text).unwrap_or_default();
    let inodes: Vec<u64> = files.iter().map(|file| file.ino).collect();
    names.find(dir, &inodes);
    for file in &mut files {
        file.name = names.names.get(&file.ino).map(|name| name.to_string_lossy().into_owned());
    }
    files
}

/// A name with its inode.
impl Finding for (u64, PathBuf) {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.1.as_os_str().len()
    }
}

/// Names that were found on a volume.
#[derive(Default)]
pub struct FileNames {
    names: HashMap<u64, PathBuf>,
    searched: Option<Instant>,
    looks: ProcessLooks<(u64, PathBuf)>,
}

impl FileNames {
    /// Searches for the names of these inodes on the volume that is mounted on `dir`. The names are
    /// relative to `dir`.
    fn find(&mut self, dir: &Path, inodes: &[u64]) {
        // A name may have gone to another file since.
        self.names.retain(|ino, name| inode_of(&dir.join(name)) == Some(*ino));
        let wanted = self.missing(inodes);
        if !wanted.is_empty() {
            let open = self.open_files(dir, wanted);
            self.names.extend(open);
        }
        let wanted = self.missing(inodes);
        if !wanted.is_empty() && self.searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            self.names.extend(search(dir, &wanted));
            self.searched = Some(Instant::now());
        }
    }

    /// Names of files that a process has open.
    fn open_files(&mut self, dir: &Path, wanted: Vec<u64>) -> Vec<(u64, PathBuf)> {
        let dir = dir.to_owned();
        self.looks.look(OPEN_LIMIT, move |pid| open_files(pid, &dir, &wanted)).0
    }

    fn missing(&self, inodes: &[u64]) -> Vec<u64> {
        inodes.iter().copied().filter(|ino| !self.names.contains_key(ino)).collect()
    }
}

fn inode_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

/// Names of files that the process has open, one for each inode. May wait without an end.
fn open_files(pid: i32, dir: &Path, wanted: &[u64]) -> HashMap<u64, PathBuf> {
    let paths = host::open_files(pid).filter_map(|link| fs::read_link(link).ok());
    let names = paths.filter_map(|path| {
        let name = path.strip_prefix(dir).ok()?.to_owned();
        // A deleted file's path ends differently, and has no inode.
        let ino = inode_of(&path).filter(|ino| wanted.contains(ino))?;
        Some((ino, name))
    });
    names.collect()
}

/// Searches for names in the directories of the volume, beginning near its root.
fn search(dir: &Path, wanted: &[u64]) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    let mut directories = std::collections::VecDeque::from([PathBuf::new()]);
    let mut left = ENTRY_LIMIT;
    while let Some(directory) = directories.pop_front() {
        for entry in fs::read_dir(dir.join(&directory)).into_iter().flatten().flatten() {
            if left == 0 || found.len() == wanted.len() {
                return found;
            }
            left -= 1;
            let name = directory.join(entry.file_name());
            if wanted.contains(&entry.ino()) {
                found.push((entry.ino(), name));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push_back(name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_directories_and_forgotten_with_their_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let path = dir.path().join("d/f");
        fs::write(&path, "x").unwrap();
        let ino = inode_of(&path).unwrap();
        let mut names = FileNames::default();
        names.find(dir.path(), &[ino, 1]);
        assert_eq!(names.names, HashMap::from([(ino, PathBuf::from("d/f"))]));
        fs::rename(&path, dir.path().join("g")).unwrap();
        // It is not searched again so soon, but found where it is open.
        names.find(dir.path(), &[ino]);
        assert!(names.names.is_empty());
        let open = fs::File::open(dir.path().join("g")).unwrap();
        names.find(dir.path(), &[ino]);
        assert_eq!(names.names[&ino], Path::new("g"));
        drop(open);
    }
}
