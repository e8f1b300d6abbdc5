//! The parts that the experiments of xLog share: the ways of making a record durable, all with
//! their files on one ext4.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::lab::{Child, Lab, Program, Teardown};
use crate::programs::latency::Latency;
use crate::systems::Running;

/// The size of the lanes' pool: that of the paper's ring, and of the ring here.
const POOL: &str = "10M";

/// A way. The order is that of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A lane of the log service, through its daemon.
    Lane,
    /// xLog's ring in the client's process: "native" in the paper.
    Native,
    /// xLog's ring through a socket.
    Ring,
    /// A write and an fsync.
    Fsync,
    /// A write and an fdatasync.
    Fdatasync,
}

impl Way {
    pub const ALL: [Way; 5] = [Way::Lane, Way::Native, Way::Ring, Way::Fsync, Way::Fdatasync];

    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Way::Lane => "OneJournal log",
            Way::Native => "xLog's ring, no IPC",
            Way::Ring => "xLog's ring",
            Way::Fsync => "write + fsync",
            Way::Fdatasync => "write + fdatasync",
        }
    }
}

/// The output of a client.
#[derive(Deserialize)]
pub struct Appended {
    pub bytes_per_s: f64,
    pub flushed_seconds: f64,
    pub latency: Latency,
}

/// The files and memory of all ways, and the daemon of the log service.
pub struct LogPlace<'a> {
    lab: &'a Lab,
    disk: PathBuf,
    memory: PathBuf,
    daemon: Option<Child>,
    count: u32,
    _teardown: Teardown,
}

impl<'a> LogPlace<'a> {
    /// Starts the daemon. Its log is on `running`, and its lanes are in memory.
    pub fn new(lab: &'a Lab, running: &Running) -> Result<LogPlace<'a>> {
        let disk = running.dir.join("xlog");
        let memory = lab.memory().join(format!("{}-xlog", running.label));
        for dir in [&disk, &memory, &memory.join("nvram")] {
            std::fs::create_dir(dir).map_err(Error::at(dir))?;
        }
        let mut teardown = Teardown::default();
        let removed = memory.clone();
        teardown.push("removing lanes and rings", move || {
            std::fs::remove_dir_all(&removed).map_err(Error::at(&removed))
        });
        let daemon = Program::new(&lab.programs().onejournal).args(["logd", "--dir"]);
        let daemon = daemon.arg(disk.join("log")).arg("--nvram").arg(memory.join("nvram"));
        let daemon = daemon.args(["--pool", POOL, "--durability", "process", "--memory"]);
        let daemon = daemon.arg(&memory);
        let daemon = daemon.arg("--listen").arg(memory.join("log.socket")).start()?;
        let mut place =
            LogPlace { lab, disk, memory, daemon: Some(daemon), count: 0, _teardown: teardown };
        place.wait_for_daemon()?;
        Ok(place)
    }

    fn wait_for_daemon(&mut self) -> Result<()> {
        // It notifies a service manager, which is not here: it serves when its log can be listed.
        let socket = self.memory.join("log.socket");
        let list = || {
            let program = Program::new(&self.lab.programs().onejournal);
            program.args(["log", "ls", "--socket"]).arg(&socket).run()
        };
        let mut last = list();
        for _ in 0..100 {
            if last.is_ok() {
                break;
            }
            crate::lab::interrupt::check()?;
            std::thread::sleep(Duration::from_millis(50));
            last = list();
        }
        last.map(drop)
    }

    /// Appends a number of records in one way, each made durable before the next. Ends when all of
    /// them are in files.
    pub fn append(&mut self, way: Way, record_bytes: u32, records: u64) -> Result<Appended> {
        self.count += 1;
        let service = self.service(way)?;
        let client = self.client("run", way, self.count);
        let client = client.args(["--record-bytes", &record_bytes.to_string()]);
        let client = client.args(["--records", &records.to_string()]);
        let text = client.time_limit(Duration::from_secs(600)).run()?;
        if let Some(service) = service {
            // Flushes what is still in the ring.
            service.finish()?;
        }
        self.clear()?;
        serde_json::from_str(&text).map_err(Error::json("append"))
    }

    /// Starts a client that makes bursts.
    pub fn burst_client(&mut self, way: Way) -> Result<Child> {
        self.count += 1;
        let mut client = self.client("burst", way, self.count).start()?;
        client.wait_until_ready()?;
        Ok(client)
    }

    /// The service of xLog's ring, if the way has one. It ends with its clients.
    fn service(&self, way: Way) -> Result<Option<Child>> {
        if way != Way::Ring {
            return Ok(None);
        }
        let service = self.lab.client("ringd").arg("--ring").arg(self.memory.join("ring"));
        let service = service.arg("--dir").arg(&self.disk);
        let mut service = service.arg("--listen").arg(self.memory.join("ring-socket")).start()?;
        service.wait_until_ready()?;
        Ok(Some(service))
    }

    fn client(&self, what: &str, way: Way, number: u32) -> Program {
        let client = self.lab.client("append").arg(what);
        match way {
            Way::Lane => {
                let client = client.arg("lane").arg(self.memory.join("log.socket"));
                client.args(["--stream", &format!("stream-{number}")])
            }
            Way::Ring => client.arg("ring").arg(self.memory.join("ring-socket")),
            Way::Native => {
                let client = client.arg("native").arg(&self.disk);
                client.arg("--ring").arg(self.memory.join("ring"))
            }
            Way::Fsync => client.arg("fsync").arg(self.disk.join("plain")),
            Way::Fdatasync => client.arg("fdatasync").arg(self.disk.join("plain")),
        }
    }

    /// Removes the files and the ring of a client that has ended, but no stream of the log.
    fn clear(&self) -> Result<()> {
        let files =
            [self.disk.join("plain"), self.disk.join("client-0.log"), self.memory.join("ring")];
        for path in files {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::at(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the daemon.
    pub fn stop(mut self) {
        drop(self.daemon.take());
    }
}
