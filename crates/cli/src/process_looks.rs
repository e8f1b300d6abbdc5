//! Looks at what all processes have open.
//!
//! A process that runs a program from a file system that does not answer keeps everybody waiting
//! who looks at its open files, without an end. So a thread looks at the processes of each user: a
//! process that keeps it waiting hides only processes of the same user. This is for a process that
//! its caller can leave behind (`crate::aside`), because such a thread keeps its process.
//!
//! A user can have any number of files open, with paths of 4 KiB. So what is found for one user
//! takes at most [`FOUND_BYTES_MAX`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use host::Account;

/// How long a look may take.
pub const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// How long a process that looks is waited for.
pub const TELL_LIMIT: Duration = Duration::from_secs(LOOK_LIMIT.as_secs() + 1);
/// The most users with a thread of their own.
const OWN_THREAD_COUNT: usize = 64;
/// Most memory for what is found for a user, in bytes. A look that finds more is not complete.
const FOUND_BYTES_MAX: usize = 2 << 20;
/// Stands for all users without one, and for processes that belong to several users.
const OTHERS: Account = Account::UNKNOWN;

/// What a look finds.
pub trait Finding: Sized + Send + 'static {
    /// How much memory it takes, about.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl Finding for i32 {}

/// State that is kept from one look to the next: the threads that have not come back, by user.
pub struct ProcessLooks<Found> {
    open: HashMap<Account, Receiver<Told<Found>>>,
}

/// What a thread tells.
enum Told<Found> {
    Found(Found),
    /// It has found more than it may tell.
    TooMuch,
}

impl<Found> Default for ProcessLooks<Found> {
    fn default() -> ProcessLooks<Found> {
        ProcessLooks { open: HashMap::new() }
    }
}

impl<Found: Finding> ProcessLooks<Found> {
    pub fn new() -> ProcessLooks<Found> {
        ProcessLooks::default()
    }

    /// Everything that `look` finds within `limit`, and whether that is all. A user whose thread
    /// has not come back from the last look is left out.
    pub fn look<All: IntoIterator<Item = Found>>(
        &mut self,
        limit: Duration,
        look: impl Fn(i32) -> All + Send + Sync + 'static,
    ) -> (Vec<Found>, bool) {
        self.look_at(processes_by_user(), limit, look)
    }

    fn look_at<All: IntoIterator<Item = Found>>(
        &mut self,
        processes: BTreeMap<Account, Vec<i32>>,
        limit: Duration,
        look: impl Fn(i32) -> All + Send + Sync + 'static,
    ) -> (Vec<Found>, bool) {
        self.forget_late();
        let late = Vec::from_iter(self.open.keys().copied());
        let look = Arc::new(look);
        let mut is_all = true;
        for (user, pids) in processes {
            is_all &= self.begin(user, pids, look.clone());
        }
        let give_up = Instant::now() + limit;
        let mut found = Vec::new();
        self.open.retain(|user, open| {
            // Such a one is not waited for again.
            while !late.contains(user) {
                let left = give_up.saturating_duration_since(Instant::now());
                match open.recv_timeout(left) {
                    Ok(Told::Found(one)) => found.push(one),
                    Ok(Told::TooMuch) => is_all = false,
                    Err(error) => return error == RecvTimeoutError::Timeout,
                }
            }
            true
        });
        (found, is_all && self.open.is_empty())
    }

    /// Forgets what came late, and the threads that have come back since.
    fn forget_late(&mut self) {
        self.open.retain(|_, late| {
            while late.try_recv().is_ok() {}
            matches!(late.try_recv(), Err(TryRecvError::Empty))
        });
    }

    /// Looks at the processes of a user. Returns whether it could begin.
    fn begin<All: IntoIterator<Item = Found>>(
        &mut self,
        user: Account,
        pids: Vec<i32>,
        look: Arc<impl Fn(i32) -> All + Send + Sync + 'static>,
    ) -> bool {
        if self.open.contains_key(&user) {
            return false;
        }
        let (sender, open) = channel();
        let body = move || {
            let mut left = FOUND_BYTES_MAX;
            for found in pids.into_iter().flat_map(|pid| look(pid)) {
                let rest = left.checked_sub(found.memory_bytes());
                let told = rest.map_or(Told::TooMuch, |_| Told::Found(found));
                match (sender.send(told), rest) {
                    (Ok(()), Some(rest)) => left = rest,
                    _ => return,
                }
            }
        };
        let begun = std::thread::Builder::new().name("oj-look".into()).spawn(body).is_ok();
        if begun {
            self.open.insert(user, open);
        }
        begun
    }
}

/// All processes. Root, this user, and then the users with the lowest numbers have threads of their
/// own.
fn processes_by_user() -> BTreeMap<Account, Vec<i32>> {
    let owner = |pid| host::process_owner(pid).map_or(OTHERS, |(user, _)| Account::of(user));
    let mut owned: Vec<(Account, i32)> =
        host::processes().into_iter().map(|pid| (owner(pid), pid)).collect();
    owned.sort_unstable_by_key(|(user, _)| (*user != Account::own(), *user));
    let mut processes: BTreeMap<Account, Vec<i32>> = BTreeMap::new();
    for (user, pid) in owned {
        let has_thread = processes.contains_key(&user) || processes.len() < OWN_THREAD_COUNT;
        let user = if has_thread { user } else { OTHERS };
        processes.entry(user).or_default().push(pid);
    }
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_process_that_cannot_be_looked_at_hides_only_those_of_its_user() {
        const SILENT: i32 = 3;
        let look = |pid| match pid {
            SILENT => loop {
                std::thread::park();
            },
            _ => vec![pid],
        };
        let processes = [(0, vec![1, 2]), (7, vec![SILENT, 4]), (8, vec![5])];
        let processes = BTreeMap::from(processes.map(|(uid, pids)| (Account::of(uid), pids)));
        let mut looks = ProcessLooks::new();
        for _ in 0..2 {
            let (mut found, is_all) =
                looks.look_at(processes.clone(), Duration::from_millis(500), look);
            found.sort_unstable();
            assert_eq!((found.as_slice(), is_all), (&[1, 2, 5][..], false));
            assert_eq!(Vec::from_iter(looks.open.keys()), [&Account::of(7)], "one thread waits");
        }
        let (found, is_all) =
            ProcessLooks::new().look_at([(Account::ROOT, vec![1])].into(), LOOK_LIMIT, look);
        assert_eq!((found.as_slice(), is_all), (&[1][..], true));
    }

    /// Takes 1 MiB.
    struct Large(i32);

    impl Finding for Large {
        fn memory_bytes(&self) -> usize {
            1 << 20
        }
    }

    #[test]
    fn regression_what_is_found_for_a_user_takes_bounded_memory() {
        let processes = BTreeMap::from([(Account::ROOT, vec![1]), (Account::of(7), vec![2])]);
        // The second process has files without end.
        let look = |pid| (0..if pid == 1 { 1 } else { i32::MAX }).map(move |_| Large(pid));
        let (found, is_all) = ProcessLooks::new().look_at(processes, LOOK_LIMIT, look);
        let of = |pid| found.iter().filter(|found| found.0 == pid).count();
        assert_eq!((of(1), of(2), is_all), (1, FOUND_BYTES_MAX >> 20, false));
    }

    #[test]
    fn all_processes_are_looked_at() {
        let own = i32::try_from(std::process::id()).unwrap();
        let of_user = &processes_by_user()[&Account::own()];
        assert!(of_user.contains(&own));
    }
}
