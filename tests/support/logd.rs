//! A daemon of a log.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{ONEJOURNAL, scratch_dir, spawn, tmpfs_dir};

/// `onejournal logd`, in a directory of its own.
pub struct Logd {
    root: tempfile::TempDir,
    memory: tempfile::TempDir,
    child: Child,
}

impl Logd {
    pub fn start(arguments: &[&str]) -> Logd {
        let (root, memory) = (scratch_dir(), tmpfs_dir());
        let notify = root.path().join("notify");
        let told = UnixDatagram::bind(&notify).unwrap();
        told.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut command = Command::new(ONEJOURNAL);
        command.arg("logd").arg("--dir").arg(root.path().join("log"));
        command.args(arguments).arg("--memory").arg(memory.path()).env("NOTIFY_SOCKET", &notify);
        let child = spawn(command.stdin(Stdio::null())).unwrap();
        let mut state = [0; 64];
        let len = told.recv(&mut state).unwrap();
        assert_eq!(&state[..len], b"READY=1");
        Logd { root, memory, child }
    }

    pub fn dir(&self) -> PathBuf {
        self.root.path().join("log")
    }

    /// The directory of its shared memory.
    pub fn memory(&self) -> &Path {
        self.memory.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn end(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Logd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
