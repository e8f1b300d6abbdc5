//! The mounted volumes of this machine, from the mount tables of all visible namespaces.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use host::{Account, MountEntry, backing_file};

use super::answer::{Answer, MountState};
use super::ask::{Asker, Running, Subject};
use super::files::FileCounters;
use super::{ANSWER_LIMIT, START_LIMIT};
use crate::counters::Counters;
use crate::namespaces::{self, Holder, NamespaceId};

/// The most asking processes for the mounts of root or of this user, and of each other user: so
/// many wait at most for mounts that never answer.
const OWN_ASKER_LIMIT: usize = 256;
const OTHERS_ASKER_LIMIT: usize = 16;
const ROOT: u32 = 0;

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
    /// The asking processes with the user of the mount, by the path that they ask.
    askers: HashMap<PathBuf, (Account, Asker)>,
    /// The asking processes of mounts that are gone, until they have ended.
    left: Vec<(Account, Running)>,
    subject: Subject,
    /// Whether the last look found all.
    is_all: bool,
}

impl Mounts {
    /// Reads the files of each volume, too.
    pub fn with_files() -> Mounts {
        Mounts::of(Subject::VolumeWithFiles)
    }

    /// Does not read files.
    pub fn without_files() -> Mounts {
        Mounts::of(Subject::Volume)
    }

    fn of(subject: Subject) -> Mounts {
        Mounts { askers: HashMap::new(), left: Vec::new(), subject, is_all: true }
    }

    /// All mounts in this namespace, and one mount of each volume that is mounted only in other
    /// namespaces.
    pub fn look(&mut self) -> Vec<SeenMount> {
        let own = NamespaceId::own().ok();
        let mut seen = HashSet::new();
        let (mut found, is_all) = namespaces::all_mounts();
        self.is_all = is_all;
        found.retain(|(holder, entry)| seen.insert(entry.device) || own == Some(holder.namespace));
        let paths: Vec<PathBuf> = found.iter().map(|(holder, _)| holder.reachable_dir()).collect();
        self.leave_all_but(&paths);
        for ((holder, entry), path) in found.iter().zip(&paths) {
            self.ask(path, || user_of(holder, entry, own));
        }
        let give_up = Instant::now() + START_LIMIT;
        self.askers.values().for_each(|(_, asker)| asker.wait_for_start(give_up));
        let give_up = Instant::now() + ANSWER_LIMIT;
        let seen = found.into_iter().zip(paths).map(|((holder, entry), path)| {
            let answer = match self.askers.get_mut(&path) {
                Some((_, asker)) => asker.answer(give_up),
                None => Some(Answer::of(MountState::NotAsked)),
            };
            let is_own = own == Some(holder.namespace);
            seen_mount(entry, path, (!is_own).then_some(holder.pid), answer)
        });
        seen.collect()
    }

    /// Whether the last look found all mounts. A user may have very many.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Forgets the processes for other mounts than these, which end when they can.
    fn leave_all_but(&mut self, paths: &[PathBuf]) {
        self.left.retain(|(_, running)| !running.is_over());
        let left = &mut self.left;
        self.askers.retain(|path, (user, asker)| {
            let is_there = paths.contains(path);
            if !is_there {
                left.push((*user, asker.running()));
            }
            is_there
        });
    }

    /// Asks the mount at `path`, unless its last answer is still missing, or too many mounts of its
    /// user are asked.
    fn ask(&mut self, path: &Path, user: impl FnOnce() -> Account) {
        if !self.askers.contains_key(path) {
            let user = user();
            if !self.may_ask(user) {
                return;
            }
            // Without one it is not asked.
            let Ok(asker) = Asker::start([path], self.subject) else { return };
            self.askers.insert(path.to_owned(), (user, asker));
        }
        if let Some((_, asker)) = self.askers.get_mut(path)
            && !asker.is_asked()
        {
            asker.ask();
        }
    }

    /// Whether the asking processes of the user, as far as they have not ended, may be one more.
    fn may_ask(&self, user: Account) -> bool {
        let askers = self.askers.values().filter(|(of, _)| *of == user).count();
        let left = self.left.iter().filter(|(of, running)| *of == user && !running.is_over());
        askers + left.count() < if user.is_trusted() { OWN_ASKER_LIMIT } else { OTHERS_ASKER_LIMIT }
    }
}

/// The user to whom a mount counts. In a namespace of a user the mount table shows other numbers.
/// So there it is the owner of the process through which the namespace was found.
fn user_of(holder: &Holder, entry: &MountEntry, own: Option<NamespaceId>) -> Account {
    let user = match own == Some(holder.namespace) {
        true => entry.user().or(Some(ROOT)),
        false => host::process_owner(holder.pid).map(|(user, _)| user),
    };
    user.map_or(Account::UNKNOWN, Account::of)
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tempfile::NamedTempFile;

    use super::*;

    fn other() -> Account {
        Account::of(65_533)
    }

    /// A process that never answers, until its input ends.
    fn silent() -> Asker {
        Asker::spawn(Command::new("cat")).unwrap()
    }

    /// A process that does not end with its input, until the file is gone.
    fn kept_alive() -> (Asker, NamedTempFile) {
        let file = NamedTempFile::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "while test -e \"$0\"; do sleep 0.1; done"]).arg(file.path());
        (Asker::spawn(command).unwrap(), file)
    }

    fn path(number: usize) -> PathBuf {
        number.to_string().into()
    }

    #[test]
    fn regression_the_processes_that_ask_the_mounts_of_a_user_are_limited() {
        let mut mounts = Mounts::without_files();
        for number in 0..OTHERS_ASKER_LIMIT {
            assert!(mounts.may_ask(other()), "{number}");
            mounts.askers.insert(path(number), (other(), silent()));
        }
        assert!(!mounts.may_ask(other()) && mounts.may_ask(Account::ROOT));
        assert!(mounts.may_ask(Account::of(65_532)));
        mounts.ask(&path(OTHERS_ASKER_LIMIT), other);
        assert_eq!(mounts.askers.len(), OTHERS_ASKER_LIMIT, "it is not asked");
    }

    #[test]
    fn regression_a_process_that_has_not_ended_counts_when_its_mount_is_gone() {
        let mut mounts = Mounts::without_files();
        let (kept, file) = kept_alive();
        mounts.askers.insert(path(0), (other(), kept));
        (1..OTHERS_ASKER_LIMIT).for_each(|number| {
            mounts.askers.insert(path(number), (other(), silent()));
        });
        let paths: Vec<PathBuf> = (1..OTHERS_ASKER_LIMIT).map(path).collect();
        mounts.leave_all_but(&paths);
        assert!(!mounts.may_ask(other()));
        drop(file);
        let begun = Instant::now();
        while !mounts.may_ask(other()) {
            assert!(begun.elapsed().as_secs() < 60, "it counts for ever");
            std::thread::yield_now();
        }
        mounts.leave_all_but(&paths);
        assert!(mounts.left.is_empty());
    }
}
