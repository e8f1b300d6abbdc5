//! Whether a daemon serves a directory.
//!
//! A daemon locks the file `DIR/daemon` while it lives. The file has the path of its socket. The
//! daemon takes the lock, and other processes join, under the service's lock. So either one daemon
//! uses a directory, or processes that opened it.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use host::{Access, Folder, ForkClosed};
use rustix::fs::FlockOperation;

use crate::media::files::{open_or_make, within};
use crate::{LogError, Result};

/// Name of the file.
const DAEMON: &str = "daemon";

/// The claim of a daemon on a directory, until it is dropped.
pub(crate) struct Serving(ForkClosed);

impl Serving {
    /// Claims the directory for the daemon that listens at `socket`.
    pub(crate) fn claim(root: &Folder, socket: &Path) -> Result<Serving> {
        refuse_if_served(root)?;
        let failed = within(root, DAEMON);
        // Only a process that can open it can lock it.
        let mut file = open_or_make(root, DAEMON, 0)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| failed(e.into()))?;
        file.set_len(0).map_err(&failed)?;
        file.write_all(socket.as_os_str().as_bytes()).map_err(&failed)?;
        Ok(Serving(ForkClosed::new(file)))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Closing it does the same.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// The socket of the daemon that serves the directory. `None`: no daemon does.
pub(crate) fn serving_socket(root: &Folder) -> Result<Option<PathBuf>> {
    let file = match root.file(DAEMON, Access::ReadOnly) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(within(root, DAEMON)(e)),
    };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(None);
    }
    Ok(Some(last_socket(root)?.unwrap_or_default()))
}

/// The socket of the daemon that served the directory last. `None`: no daemon has.
pub(crate) fn last_socket(root: &Folder) -> Result<Option<PathBuf>> {
    let socket = root.read(DAEMON).map_err(within(root, DAEMON))?;
    Ok(socket.filter(|socket| !socket.is_empty()).map(|socket| OsString::from_vec(socket).into()))
}

/// An error that names the socket while a daemon serves the directory.
pub(crate) fn refuse_if_served(root: &Folder) -> Result<()> {
    let Some(socket) = serving_socket(root)? else { return Ok(()) };
    let (directory, socket) = (root.path().display(), socket.display());
    Err(LogError::InUse(format!("a daemon serves {directory}: connect to its socket, {socket}")))
}
