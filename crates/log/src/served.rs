//! Whether a daemon serves a directory.
//!
//! A daemon locks the file `DIR/daemon`, in which its socket is named, as long as it lives. Both this
//! and joining happen under the service's lock, so a directory is either a daemon's or of the
//! processes that open it themselves.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use device::ForkClosed;
use rustix::fs::FlockOperation;

use crate::{LogError, Result};

/// The claim of a daemon on a directory, until it is dropped.
pub(crate) struct Serving(ForkClosed);

fn at(path: &Path) -> impl Fn(std::io::Error) -> LogError + '_ {
    move |e| LogError::system(path.display().to_string(), e)
}

impl Serving {
    /// Claims `directory` for the daemon that listens at `socket`.
    pub(crate) fn claim(directory: &Path, socket: &Path) -> Result<Serving> {
        refuse_if_served(directory)?;
        let path = directory.join("daemon");
        let mut options = File::options();
        // Whoever can open it can lock it.
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(at(&path))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| at(&path)(e.into()))?;
        file.set_len(0).map_err(at(&path))?;
        file.write_all(socket.as_os_str().as_bytes()).map_err(at(&path))?;
        Ok(Serving(ForkClosed::new(file)))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Closing it does the same.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// An error that names the socket while a daemon serves `directory`.
pub(crate) fn refuse_if_served(directory: &Path) -> Result<()> {
    let path = directory.join("daemon");
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(at(&path)(e)),
    };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(());
    }
    let mut socket = Vec::new();
    file.read_to_end(&mut socket).map_err(at(&path))?;
    let socket = String::from_utf8_lossy(&socket);
    let directory = directory.display();
    Err(LogError::Daemon(format!("one serves {directory}: connect to its socket, {socket}")))
}
