//! The mounted volumes of this machine, from the mount tables of all visible namespaces.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use device::MountEntry;

use super::answer::{Answer, MountState};
use super::ask::{Asker, Subject};
use super::files::FileCounters;
use super::{ANSWER_LIMIT, START_LIMIT};
use crate::counters::Counters;
use crate::namespaces::{self, NamespaceId};
use crate::volumes::backing_file;

/// A place where a volume is mounted.
#[derive(Debug, Clone)]
pub struct SeenMount {
    /// The image or device.
    pub target: PathBuf,
    pub dir: PathBuf,
    /// Device number. All mounts of one volume have the same.
    pub device: (u32, u32),
    /// A path by which it can be reached from this namespace.
    pub path: PathBuf,
    /// A process of its mount namespace, if that is another one.
    pub namespace_pid: Option<i32>,
    pub state: MountState,
    pub pid: Option<i32>,
    /// Its counters. Empty if it did not answer.
    pub counters: Counters,
    /// The files with the most bytes written, if they were asked for.
    pub files: Vec<FileCounters>,
}

/// State that is kept from one look at the mounts to the next.
pub struct Mounts {
    /// The asking processes, by the path that they ask.
    askers: HashMap<PathBuf, Asker>,
    subject: Subject,
}

impl Mounts {
    /// Reads the files of each volume, too.
    pub fn with_files() -> Mounts {
        Mounts { askers: HashMap::new(), subject: Subject::VolumeWithFiles }
    }

    /// Does not read files.
    pub fn without_files() -> Mounts {
        Mounts { askers: HashMap::new(), subject: Subject::Volume }
    }

    /// All mounts in this namespace, and one mount of each volume that is mounted only in other
    /// namespaces.
    pub fn look(&mut self) -> Vec<SeenMount> {
        let own = NamespaceId::own().ok();
        let mut seen = HashSet::new();
        let mut found = namespaces::all_mounts();
        found.retain(|(holder, entry)| seen.insert(entry.device) || own == Some(holder.namespace));
        let paths: Vec<PathBuf> = found.iter().map(|(holder, _)| holder.reachable_dir()).collect();
        self.askers.retain(|path, _| paths.contains(path));
        for path in &paths {
            self.ask(path);
        }
        let give_up = Instant::now() + START_LIMIT;
        self.askers.values().for_each(|asker| asker.wait_for_start(give_up));
        let give_up = Instant::now() + ANSWER_LIMIT;
        let seen = found.into_iter().zip(paths).map(|((holder, entry), path)| {
            let answer = self.askers.get_mut(&path).and_then(|asker| asker.answer(give_up));
            let is_own = own == Some(holder.namespace);
            seen_mount(entry, path, (!is_own).then_some(holder.pid), answer)
        });
        seen.collect()
    }

    /// Asks the mount at `path`, unless its last answer is still missing.
    fn ask(&mut self, path: &Path) {
        if !self.askers.contains_key(path) {
            // Without one it does not answer.
            let Ok(asker) = Asker::start([path], self.subject) else { return };
            self.askers.insert(path.to_owned(), asker);
        }
        if let Some(asker) = self.askers.get_mut(path).filter(|asker| !asker.is_asked()) {
            asker.ask();
        }
    }
}

fn seen_mount(
    entry: MountEntry,
    path: PathBuf,
    namespace_pid: Option<i32>,
    answer: Option<Answer>,
) -> SeenMount {
    let silent = || Answer::of(MountState::Silent);
    let Answer { state, pid, counters, files, .. } = answer.unwrap_or_else(silent);
    let counters = Counters(counters);
    let source = backing_file(entry.device).unwrap_or(entry.source);
    SeenMount {
        target: counters.text("target").map_or(source, PathBuf::from),
        dir: entry.dir,
        device: entry.device,
        path,
        namespace_pid,
        state,
        pid,
        counters,
        files,
    }
}
