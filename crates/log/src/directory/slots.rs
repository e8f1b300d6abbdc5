//! The processes that use a service's directory: its lock, and a file for each process, locked
//! while the process lives.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use host::{Access, Folder, ForkClosed};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::Refusal;
use crate::media::files::{make_folder, open_or_make, within};
use crate::words::{CLIENT_COUNT_MAX, Client, Control};
use crate::{LogError, Result};

/// The service's lock.
pub(crate) struct Lock {
    _file: ForkClosed,
}

const LOCK: &str = "lock";

/// How long a process that opens or closes the log waits for the lock. Another one may recover
/// the service meanwhile.
pub(crate) const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// How long a process waits for the lock that has the log open: at most once an hour in an append.
pub(crate) const USE_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

impl Lock {
    /// Takes the lock. An error if other processes hold it for `limit`: one may be stopped.
    pub(crate) fn take(root: &Folder, limit: Duration) -> Result<Lock> {
        let file = ForkClosed::new(open_or_make(root, LOCK, 0)?);
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < limit => std::thread::sleep(POLL),
                Err(Errno::WOULDBLOCK) => {
                    let what = format!(
                        "{}: another process holds it and does not go on, perhaps because it is \
                         stopped (fuser shows its number)",
                        root.at(LOCK).display()
                    );
                    let waited = format!("for {limit:?}");
                    let source = std::io::Error::new(ErrorKind::TimedOut, waited);
                    return Err(LogError::system(what, source));
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(within(root, LOCK)(e.into())),
            }
        }
    }

    /// Takes the lock. `None`: another process has it.
    pub(crate) fn take_if_free(root: &Folder) -> Result<Option<Lock>> {
        let file = root.file(LOCK, Access::ReadOnly).map_err(within(root, LOCK))?;
        let file = ForkClosed::new(file);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(_) => Ok(None),
        }
    }
}

/// The processes that use a service: a directory with a file for each.
pub(crate) struct Slots(Folder);

impl Slots {
    pub(crate) fn open(root: &Folder) -> Result<Slots> {
        make_folder(root, "clients").map(Slots)
    }

    /// Takes the first free slot.
    pub(crate) fn take(&self, control: &Control) -> Result<(Client, ForkClosed)> {
        for slot in 0..CLIENT_COUNT_MAX {
            let file = ForkClosed::new(open_or_make(&self.0, &name_of(slot), 0)?);
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok((control.join(slot), file));
            }
        }
        let directory = self.0.path().to_owned();
        Err(Refusal::TooManyProcesses { limit: CLIENT_COUNT_MAX, directory }.into())
    }

    /// An error if any process has a slot. `why` says why that is an error.
    pub(crate) fn refuse_if_joined(&self, why: &str) -> Result<()> {
        match (0..CLIENT_COUNT_MAX).find(|slot| self.is_taken(*slot)) {
            None => Ok(()),
            Some(slot) => {
                let file = self.0.at(&name_of(slot));
                let text = format!("{}: {why} (fuser shows its number)", file.display());
                Err(LogError::Incompatible(text))
            }
        }
    }

    /// Whether any process has a slot other than `own`. Also true if that cannot be found out.
    pub(crate) fn is_joined(&self, own: Option<usize>) -> bool {
        // Files are made for slots that are taken, and stay.
        let Ok(names) = self.0.names() else { return true };
        let slots = names.iter().filter_map(|name| name.parse::<usize>().ok());
        slots.filter(|slot| Some(*slot) != own).any(|slot| self.is_taken(slot))
    }

    /// Whether a process has the slot. Also true if that cannot be found out.
    pub(crate) fn is_taken(&self, slot: usize) -> bool {
        match self.0.file(&name_of(slot), Access::ReadOnly) {
            Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(e) => e.kind() != std::io::ErrorKind::NotFound,
        }
    }
}

fn name_of(slot: usize) -> String {
    format!("{slot:03}")
}
