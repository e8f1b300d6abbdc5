//! Root with the permissions of the user whose directory it works in.
//!
//! Root may write everywhere. So a user who exchanges a directory for a symbolic link, or for
//! another directory, can lead what root makes there to any place, at any moment between two system
//! calls. A file that root makes with that user's permissions only is in a place where the user
//! could have made it, and it belongs to the user from the beginning: nothing is given away later.
//!
//! 1. The user for files (`setfsuid`) is one of a thread. A thread of its own changes it, and ends.
//!    So the caller keeps its user, its privileges and the signal that it gets when its parent
//!    dies.
//! 2. The thread has no supplementary groups and no privileges. The user and group of the process
//!    stay, so that the other user can neither trace the thread nor send it a signal.
//! 3. The thread gets no signal, because a handler of the program would run as the other user.

use std::io::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;

use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups};

use crate::files::trust::Owner;

/// Runs `f` with the permissions of `owner` if this process is root and `owner` is another user.
///
/// # Errors
/// The result of `f`. An error because of the permissions of `owner` is explained.
pub(crate) fn as_owner<T: Send>(
    owner: Option<Owner>,
    f: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match owner {
        Some(owner) if geteuid().is_root() && owner.uid != 0 => in_thread(owner, f),
        _ => f(),
    }
}

fn in_thread<T: Send>(owner: Owner, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("onejournal-user".into());
        let thread = builder.spawn_scoped(scope, || {
            become_owner(owner).map_err(|error| cannot_act(owner, error))?;
            f().map_err(|error| explained(owner, error))
        })?;
        thread.join().unwrap_or_else(|_| Err(Error::other("acting as another user panicked")))
    })
}

/// The calling thread is `owner` for files from now on.
fn become_owner(owner: Owner) -> Result<()> {
    block_signals()?;
    // A process whose threads change their user loses its core dumps. If two threads are here at
    // once, it may stay without.
    let before = dumpable_behavior()?;
    set_thread_groups(&[])?;
    // SAFETY: takes a number, and concerns the calling thread only.
    unsafe { libc::setfsgid(owner.gid) };
    // SAFETY: the same.
    unsafe { libc::setfsuid(owner.uid) };
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    if before == DumpableBehavior::Dumpable {
        set_dumpable_behavior(before)?;
    }
    // They do not report errors. No user has the number -1, so these calls only return the numbers.
    // SAFETY: as above.
    let now = unsafe { (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)) };
    match now == (owner.uid.cast_signed(), owner.gid.cast_signed()) {
        true => Ok(()),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

fn block_signals() -> Result<()> {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the set is filled by the first call and lives until the second one has returned; the
    // old set is not asked for.
    let failed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut())
    };
    match failed {
        0 => Ok(()),
        number => Err(Error::from_raw_os_error(number)),
    }
}

fn cannot_act(Owner { uid, .. }: Owner, error: Error) -> Error {
    let why = format!("root cannot act as user {uid} here (CAP_SETUID, CAP_SETGID): {error}");
    Error::new(error.kind(), why)
}

/// Says whose permissions were too few.
fn explained(Owner { uid, gid }: Owner, error: Error) -> Error {
    if error.kind() != ErrorKind::PermissionDenied {
        return error;
    }
    let why = format!(
        "permission denied for user {uid}, to whom it belongs or would belong: root acts with the \
         permissions of that user and group {gid} only. Permit that user to write the directory \
         above it, or make it as a directory of that user: install -d -o {uid} -g {gid} -m 711 DIR"
    );
    Error::new(ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use onejournal_testing::is_root;
    use rustix::process::{Gid, getgroups};

    use super::*;

    const OTHER: Owner = Owner { uid: 65_533, gid: 65_532 };

    #[test]
    fn root_acts_with_the_permissions_of_the_owner_and_stays_root() {
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        let make = |name: &str| as_owner(Some(OTHER), || fs::write(at(name), "x"));
        // The group of the directory.
        let own = getgroups().expect("groups");
        set_thread_groups(&[Gid::ROOT]).expect("root");
        let before = (getgroups().expect("groups"), dumpable_behavior().expect("asked"));
        for (mode, is_allowed) in [(0o755, false), (0o775, false), (0o757, true)] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).expect("mode");
            let made = make(&format!("{mode:o}"));
            assert_eq!(made.is_ok(), is_allowed, "{mode:o}");
            if let Err(error) = made {
                assert!(error.to_string().contains("user 65533"), "{error}");
            }
        }
        let found = fs::metadata(at("757")).expect("made");
        assert_eq!((found.uid(), found.gid()), (OTHER.uid, OTHER.gid));
        // Some privileges have nothing to do with the user for files.
        let status = || fs::read_to_string("/proc/thread-self/status");
        let status = as_owner(Some(OTHER), status).expect("asked");
        for line in ["CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n"] {
            assert!(status.contains(line), "{status}");
        }
        // Another user's file is not opened, either.
        fs::write(at("own"), "root's").expect("written");
        fs::set_permissions(at("own"), fs::Permissions::from_mode(0o600)).expect("mode");
        let read = as_owner(Some(OTHER), || fs::read(at("own")));
        assert_eq!(read.expect_err("root's").kind(), ErrorKind::PermissionDenied);
        // The caller may still do what root may.
        assert_eq!(fs::read(at("own")).expect("root"), b"root's");
        let after = (getgroups().expect("groups"), dumpable_behavior().expect("asked"));
        assert!(before == after, "{before:?} {after:?}");
        set_thread_groups(&own).expect("root");
    }

    #[test]
    fn other_users_act_as_themselves() {
        let home = tempfile::tempdir().expect("directory");
        for (name, owner) in [("none", None), ("root", Some(Owner { uid: 0, gid: 0 }))] {
            let path = home.path().join(name);
            as_owner(owner, || fs::write(&path, "x")).expect("written");
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(fs::metadata(&path).expect("there").uid(), own);
        }
    }
}
