//! The kernel's ext4 on a disk, with programs on it that use the log service.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use servers::Notices;

use crate::case::How;
use crate::command::spawn;
use crate::history::Survivor;
use crate::scenario::{LogPlace, Scenario};
use crate::space::{SOCKET, Space};
use crate::worker::{self, Hand, Worker, log_dir};

/// The programs that a judge starts.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The command under test.
    pub onejournal: PathBuf,
    /// A program, with its arguments, that calls [`worker::run`].
    pub worker: Vec<OsString>,
}

/// A mounted disk; taken down in this order.
pub struct Host {
    workers: Vec<Worker>,
    daemon: Option<Daemon>,
    space: Space,
    programs: Programs,
}

impl Host {
    /// Mounts the disk `device`, and starts the daemon if `is_served`.
    pub fn start(
        device: &Path,
        programs: &Programs,
        scenario: &Scenario,
        is_served: bool,
    ) -> Result<Host, String> {
        let space = Space::start(device)?;
        let start = || Daemon::start(&space, &programs.onejournal, scenario.is_contained());
        let daemon = is_served.then(start).transpose()?;
        Ok(Host { workers: Vec::new(), daemon, space, programs: programs.clone() })
    }

    /// The same, for a run of this scenario.
    pub fn of(device: &Path, programs: &Programs, scenario: &Scenario) -> Result<Host, String> {
        let is_served = scenario.hosted.is_some_and(|hosted| hosted.log == LogPlace::Daemon);
        Host::start(device, programs, scenario, is_served)
    }

    /// Starts the processes that write. Returns what each actor finds.
    pub fn hire(&mut self, scenario: &Scenario) -> Result<Vec<u64>, String> {
        let actors: Vec<usize> = (0..scenario.actors.len()).collect();
        let is_one = scenario.hosted.is_some_and(|hosted| hosted.is_one_process);
        for actors in actors.chunks(if is_one { actors.len() } else { 1 }) {
            self.workers.push(Worker::hire(&self.space, &self.programs.worker, scenario, actors)?);
        }
        let mut counts = vec![0; scenario.actors.len()];
        for (actor, count) in self.workers.iter().flat_map(Worker::ready) {
            counts[*actor] = *count;
        }
        Ok(counts)
    }

    /// The connection to an actor.
    pub fn hand(&mut self, actor: usize) -> Hand {
        let hand = self.workers.iter_mut().find_map(|worker| worker.hand(actor));
        hand.expect("each actor has a worker, and is asked for once")
    }

    /// What a new process finds.
    pub fn check(&self, scenario: &Scenario, how: How) -> Result<Vec<Survivor>, String> {
        let counts = worker::check(&self.space, &self.programs.worker, scenario, how)?;
        Ok(counts.into_iter().map(Survivor::Count).collect())
    }

    /// Ends all programs, and unmounts.
    pub fn stop(mut self) -> Result<(), String> {
        self.workers.drain(..).try_for_each(Worker::dismiss)?;
        if let Some(daemon) = self.daemon.take() {
            daemon.stop()?;
        }
        self.space.umount()
    }
}

/// `onejournal logd`.
struct Daemon {
    child: Child,
    /// Where it says that it ends.
    notices: Notices,
}

impl Daemon {
    fn start(space: &Space, onejournal: &Path, is_contained: bool) -> Result<Daemon, String> {
        let mut logd = space.command(onejournal);
        logd.args(["logd", "--pool", "1M", "--segment", "64K", "--dir"]).arg(log_dir());
        if is_contained {
            logd.args(["--listen", SOCKET]);
        }
        let notices = Notices::new()?;
        notices.apply(&mut logd);
        logd.stdin(Stdio::null()).stdout(Stdio::null());
        let child = spawn(&mut logd).map_err(|e| format!("{logd:?}: {e}"))?;
        let mut daemon = Daemon { child, notices };
        let ready = daemon.notices.wait(&mut daemon.child, || false);
        ready.map_err(|why| format!("onejournal logd {why}"))?;
        Ok(daemon)
    }

    fn stop(mut self) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|e| e.to_string())?;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("onejournal logd ended with {status}")) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // At its end already, or the run has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
