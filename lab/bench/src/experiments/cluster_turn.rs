//! A turn of a cluster on the mounts of one system.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde::de::DeserializeOwned;

use crate::clients::cluster::{Found, Load, Request};
use crate::error::{Error, Result};
use crate::lab::{Child, Lab, Program};
use crate::systems::{Counts, Running};

const DATA: &str = "data";
const MIB: u64 = 1 << 20;

/// A cluster that runs, with a member on each node.
pub struct Turn<'a> {
    nodes: &'a [Running],
    cluster: Child,
    /// The requests to the disk of each node when the cluster was ready.
    before: Vec<Counts>,
}

impl<'a> Turn<'a> {
    /// Starts a new cluster, without latency until it is ready.
    pub fn start(lab: &Lab, engine: &str, nodes: &'a [Running]) -> Result<Turn<'a>> {
        nodes.iter().try_for_each(Running::speed_up)?;
        let unshare = ["--net", "--pid", "--fork", "--kill-child", "--"];
        let program = nodes[0].client.apply(Program::new("unshare")).args(unshare);
        let program = program.arg(&lab.programs().bench).args(["cluster", engine]);
        let mut cluster = program.args(nodes.iter().map(|node| node.dir.join(DATA))).start()?;
        cluster.wait_until_ready()?;
        nodes.iter().try_for_each(Running::sync)?;
        nodes.iter().try_for_each(Running::slow_down)?;
        let before = nodes.iter().map(Running::counts).collect::<Result<_>>()?;
        Ok(Turn { nodes, cluster, before })
    }

    /// The node of the leader.
    pub fn leader(&mut self) -> Result<&'a Running> {
        let leader: usize = self.ask(Request::Leader)?;
        Ok(&self.nodes[leader])
    }

    /// Runs a load, and counts the requests to all disks.
    pub fn load(&mut self, load: Load) -> Result<(Found, Counts)> {
        let before = self.counts()?;
        let found: Found = self.ask(Request::Load(load))?;
        if found.commits == 0 {
            let why = found.failure.as_deref().unwrap_or("no error");
            return Err(Error::other(format!("the cluster acknowledged no commit: {why}")));
        }
        Ok((found, self.counts()? - before))
    }

    /// Ends the cluster without latency and removes its data. Returns the bytes that the disks got
    /// until everything was home.
    pub fn finish(self) -> Result<u64> {
        self.nodes.iter().try_for_each(Running::speed_up)?;
        self.cluster.finish()?;
        let mut home_bytes = 0;
        for (node, before) in self.nodes.iter().zip(self.before) {
            home_bytes += node.all_home(before)?.write_bytes;
            let data = node.dir.join(DATA);
            fs::remove_dir_all(&data).map_err(Error::at(&data))?;
        }
        Ok(home_bytes)
    }

    fn ask<T: DeserializeOwned>(&mut self, request: Request) -> Result<T> {
        let line = serde_json::to_string(&request).map_err(Error::json("a request"))?;
        let answer = self.cluster.ask(&line)?;
        serde_json::from_str(&answer).map_err(Error::json(answer))
    }

    fn counts(&self) -> Result<Counts> {
        let mut all = self.nodes.iter().map(Running::counts);
        all.try_fold(Counts::default(), |sum, counts| Ok(sum + counts?))
    }
}

/// A large file in memory, of bytes that do not compress, and the place of the word to stop.
pub struct LargeFile {
    path: PathBuf,
    stop: PathBuf,
    mib: u64,
}

impl LargeFile {
    /// Makes it.
    pub fn make(lab: &Lab, mib: u64) -> Result<LargeFile> {
        let path = lab.memory().join("large");
        let dd = Program::new("dd").args(["if=/dev/urandom", "bs=1M"]);
        dd.arg(format!("of={}", path.display())).arg(format!("count={mib}")).run()?;
        Ok(LargeFile { path, stop: lab.memory().join("stop"), mib })
    }

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::at(&self.path))
    }
}

/// Copies the file, syncs the copy and begins again, until there is a file that says to stop. After
/// a signal it ends when no copy is open any more, so that its file system can be unmounted.
const COPY: &str = "trap exit TERM; until [ -e \"$2\" ]; do \
    dd if=\"$0\" of=\"$1\" bs=1M conv=fsync status=none || exit 1; echo; done";

/// A program that writes a large file again and again.
pub struct Neighbour<'a> {
    file: &'a LargeFile,
    copy: PathBuf,
    program: Child,
    begin: Instant,
}

impl<'a> Neighbour<'a> {
    /// Starts it on the disk of a node.
    pub fn start(file: &'a LargeFile, node: &Running) -> Result<Neighbour<'a>> {
        let copy = node.dir.join("neighbour");
        let program = Program::new("sh").args(["-c", COPY]).arg(&file.path).arg(&copy);
        let program = program.arg(&file.stop).start()?;
        Ok(Neighbour { file, copy, program, begin: Instant::now() })
    }

    /// Lets it sync its file a last time. Returns the MB/s that it has synced.
    pub fn stop(self) -> Result<f64> {
        let Neighbour { file, copy, program, begin } = self;
        fs::write(&file.stop, "").map_err(Error::at(&file.stop))?;
        let synced = program.finish();
        let seconds = begin.elapsed().as_secs_f64();
        fs::remove_file(&file.stop).map_err(Error::at(&file.stop))?;
        let bytes = synced?.len() as u64 * file.mib * MIB;
        fs::remove_file(&copy).map_err(Error::at(&copy))?;
        Ok(bytes as f64 / 1e6 / seconds)
    }
}
