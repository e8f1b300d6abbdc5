//! Runs a program where the file systems of other users are not seen.
//!
//! Any user may mount a FUSE server that never answers, and may say that what it serves came from a
//! path below another one. A program that looks at everything in the mount table, as `mke2fs` and
//! `e2fsck` do, then waits without an end.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::geteuid;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::below::mount_table::{MountEntry, own_mounts};
use crate::descriptor::link_to;
use crate::files::trust::Trust;

/// Most times that the mount table is read. Each time the mounts go that were on top. A user can
/// mount 1,000 servers, each on the other (fuse.conf(5), the number of mounts).
const PASSES_MAX: usize = 1024;

/// Runs `f`, in whose mount table, and in those of programs that it starts, no FUSE server of a
/// user other than root and this one is mounted. Where mounts are shared, a file system that is
/// mounted or unmounted elsewhere meanwhile is mounted or unmounted there, too. Without the
/// permission for a mount namespace of its own, all mounts are seen.
///
/// # Panics
/// If `f` panics.
pub fn without_foreign_servers<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    if foreign_servers().is_empty() {
        return f();
    }
    std::thread::scope(|scope| {
        // Only the thread that asks for it has the namespace, and what it starts.
        let thread = scope.spawn(|| {
            if enter_namespace().is_ok() {
                detach_foreign_servers();
            }
            f()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives the calling thread a copy of the mounts, whose changes the others do not see.
fn enter_namespace() -> Result<(), Errno> {
    // SAFETY: unsafe is only what FILES does, which is not asked for: the thread keeps the table of
    // descriptors of the process.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream)
}

/// Takes them off in this namespace. To follow the path of a mount would ask a server that is
/// mounted above it or over it. Such a path is refused, until that server has been taken off.
fn detach_foreign_servers() {
    let trust = Trust::own().and_root();
    let detach = |dir: &Path| {
        // A path of the table has no link, unless a user exchanged a part of it.
        let opened = trust.walk(dir, |_| Err(Errno::LOOP.into()))?.opened()?;
        unmount(link_to(&opened), UnmountFlags::DETACH).map_err(std::io::Error::from)
    };
    for _ in 0..PASSES_MAX {
        let detached =
            foreign_servers().iter().filter(|server| detach(&server.dir).is_ok()).count();
        if detached == 0 {
            return;
        }
    }
}

fn foreign_servers() -> Vec<MountEntry> {
    let trusted = [0, geteuid().as_raw()];
    let mounts = own_mounts().unwrap_or_default().into_iter();
    mounts.filter(|mount| mount.user().is_some_and(|user| !trusted.contains(&user))).collect()
}
