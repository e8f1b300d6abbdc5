//! The mounted volumes of this machine, from the mount tables of all namespaces that can be seen.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use device::MountEntry;
use serde_json::Map;

use super::ANSWER_LIMIT;
use super::answer::{Answer, MountState};
use super::files::FileCounters;
use super::probe::{Probe, Subject};
use crate::counters::Counters;
use crate::namespaces::{self, NamespaceId};
use crate::volumes::backing_file;

/// A place where a volume is mounted.
#[derive(Debug, Clone)]
pub struct SeenMount {
    /// The image or device.
    pub target: PathBuf,
    pub dir: PathBuf,
    /// All places where one volume is mounted have the same.
    pub device: (u32, u32),
    /// A path by which it can be asked from here.
    pub path: PathBuf,
    /// A process of its mount namespace, if that is not ours.
    pub namespace_pid: Option<i32>,
    pub state: MountState,
    pub pid: Option<i32>,
    /// Empty unless it answered.
    pub counters: Counters,
    /// Those for which most was written, if they were asked for.
    pub files: Vec<FileCounters>,
}

/// What is needed to see the mounts again and again.
pub struct Mounts {
    /// By the path that is asked.
    probes: HashMap<PathBuf, Probe>,
    subject: Subject,
}

impl Mounts {
    /// With the files of each volume.
    pub fn with_files() -> Mounts {
        Mounts { probes: HashMap::new(), subject: Subject::VolumeWithFiles }
    }

    /// Without them.
    pub fn without_files() -> Mounts {
        Mounts { probes: HashMap::new(), subject: Subject::Volume }
    }

    /// All places in our namespace, and one place of each volume that is mounted in other namespaces only.
    pub fn look(&mut self) -> Vec<SeenMount> {
        let own = NamespaceId::own().ok();
        let mut seen = HashSet::new();
        let mut found = namespaces::all_mounts();
        found.retain(|(holder, entry)| seen.insert(entry.device) || own == Some(holder.namespace));
        let paths: Vec<PathBuf> = found.iter().map(|(holder, _)| holder.reachable_dir()).collect();
        self.probes.retain(|path, _| paths.contains(path));
        for path in &paths {
            self.ask(path);
        }
        let give_up = Instant::now() + ANSWER_LIMIT;
        let seen = found.into_iter().zip(paths).map(|((holder, entry), path)| {
            let answer = self.probes.get_mut(&path).and_then(|probe| probe.answer(give_up));
            let is_own = own == Some(holder.namespace);
            seen_mount(entry, path, (!is_own).then_some(holder.pid), answer)
        });
        seen.collect()
    }

    /// Asks; one that has not answered yet is not asked again.
    fn ask(&mut self, path: &Path) {
        if !self.probes.contains_key(path) {
            // Without one it does not answer.
            let Ok(probe) = Probe::start(path, self.subject) else { return };
            self.probes.insert(path.to_owned(), probe);
        }
        if let Some(probe) = self.probes.get_mut(path).filter(|probe| !probe.is_asked()) {
            probe.ask();
        }
    }
}

fn seen_mount(
    entry: MountEntry,
    path: PathBuf,
    namespace_pid: Option<i32>,
    answer: Option<Answer>,
) -> SeenMount {
    let silent = Answer {
        state: MountState::Silent,
        pid: None,
        counters: Map::new(),
        error: None,
        files: Vec::new(),
    };
    let Answer { state, pid, counters, files, .. } = answer.unwrap_or(silent);
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
