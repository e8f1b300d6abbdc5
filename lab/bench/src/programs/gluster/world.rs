//! The inside of the namespaces: network, daemons, clients, and the load.
//!
//! This program is process 1 here: when it ends, the kernel kills all others.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::Variable;
use super::super::fio::{self, FioArgs, FioResult, Pattern, Sync};
use super::super::network::{self, ETHERNET, NETWORK, ip};
use super::GlusterArgs;
use crate::error::{Error, Result};
use crate::lab::{Child, Program, interrupt};

const VOLUME: &str = "bench";
const READY_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Directories that GlusterFS uses outside of its volumes. `ip netns` keeps names in `/run`, too.
const PRIVATE_DIRS: [&str; 3] = ["/run", "/var/lib/glusterd", "/var/log/glusterfs"];

/// Sets everything up, runs the load, and takes everything down.
pub fn run(args: &GlusterArgs) -> Result<FioResult> {
    if PRIVATE_DIRS.iter().any(|dir| args.dir.starts_with(dir)) {
        return Err(Error::other(format!("{}: is hidden from GlusterFS", args.dir.display())));
    }
    for dir in PRIVATE_DIRS {
        Program::new("mount").args(["-t", "tmpfs", "none", dir]).run()?;
    }
    fs::create_dir("/run/gluster").map_err(Error::io("/run/gluster"))?;
    replace_geo_replication()?;
    network::make_bridge()?;
    let daemon = start_daemon(&args.environment)?;
    let brick = args.dir.join("brick");
    fs::create_dir(&brick).map_err(Error::at(&brick))?;
    let server = format!("{NETWORK}.1");
    gluster(&["volume", "create", VOLUME, &format!("{server}:{}", brick.display()), "force"])?;
    gluster(&["volume", "start", VOLUME])?;
    let mounts = (0..args.clients).map(|n| start_client(n, &server)).collect::<Result<Vec<_>>>()?;
    let result = fio::run_in(&mounts, &load(args));
    let result = result.map_err(with_logs)?;
    for mount in &mounts {
        Program::new("umount").arg(mount).run()?;
    }
    gluster(&["volume", "stop", VOLUME, "force"])?;
    drop(daemon);
    fs::remove_dir_all(&brick).map_err(Error::at(&brick))?;
    Ok(result)
}

/// A replacement for a Python program that glusterd starts a dozen times at its start, which takes
/// seconds. It only prints its name, which is enough because nothing is replicated here.
fn replace_geo_replication() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let script = Path::new("/run/gsyncd");
    fs::write(script, "#!/bin/sh\necho gsyncd\n").map_err(Error::at(script))?;
    let is_executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(script, is_executable).map_err(Error::at(script))?;
    let dirs = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let programs = dirs.chain(["/usr/libexec".into()]).map(|dir| dir.join("glusterfs/gsyncd"));
    for program in programs.filter(|program| program.exists()) {
        Program::new("mount").arg("--bind").arg(script).arg(program).run()?;
    }
    Ok(())
}

fn load(args: &GlusterArgs) -> FioArgs {
    FioArgs {
        dir: PathBuf::new(),
        files: 1,
        file_kib: (args.records * args.record_bytes).div_ceil(1024),
        block_bytes: args.record_bytes,
        pattern: Pattern::Append,
        sync: Sync::EachWrite,
        processes: args.clients * args.processes,
        millis: args.seconds * 1000,
        seed: 7,
        environment: Vec::new(),
    }
}

fn gluster(arguments: &[&str]) -> Result<String> {
    Program::new("gluster").arg("--mode=script").args(arguments).run().map_err(with_logs)
}

/// The brick's server inherits the environment.
fn start_daemon(environment: &[Variable]) -> Result<Child> {
    let program = Variable::add(environment, Program::new("glusterd"));
    let mut daemon = program.args(["--no-daemon", "--log-level", "WARNING"]).start()?;
    let deadline = Instant::now() + READY_LIMIT;
    while gluster(&["volume", "info"]).is_err() {
        daemon.must_run()?;
        interrupt::check()?;
        if Instant::now() > deadline {
            let text = format!("glusterd was not ready within {} s", READY_LIMIT.as_secs());
            return Err(with_logs(Error::other(text)));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(daemon)
}

/// Starts a client in its network namespace. Returns its mount point.
fn start_client(number: u32, server: &str) -> Result<PathBuf> {
    let name = format!("client{number}");
    // .1 is the server.
    let address = number + 2;
    ip(&format!("netns add {name}"))?;
    network::connect(&name, &name)?;
    ip(&format!("-n {name} addr add {NETWORK}.{address}/24 dev {ETHERNET}"))?;
    ip(&format!("-n {name} link set {ETHERNET} up"))?;
    let dir = Path::new("/run/gluster").join(&name);
    fs::create_dir(&dir).map_err(Error::at(&dir))?;
    Program::new("nsenter")
        .arg(format!("--net=/run/netns/{name}"))
        .args(["glusterfs", "--volfile-server", server, "--volfile-id", VOLUME])
        .arg("--log-file")
        .arg(format!("/var/log/glusterfs/{name}.log"))
        .arg(&dir)
        .run()
        .map_err(with_logs)?;
    Ok(dir)
}

/// The daemons give reasons only in their logs, which are lost with the namespace.
fn with_logs(error: Error) -> Error {
    let mut text = error.to_string();
    let dirs = ["/var/log/glusterfs", "/var/log/glusterfs/bricks"].map(Path::new);
    for file in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
        let Ok(log) = fs::read_to_string(file.path()) else { continue };
        let is_bad = |line: &&str| line.contains("] E [") || line.contains("] C [");
        for line in log.lines().filter(is_bad) {
            text.push_str(&format!("\n{}: {line}", file.file_name().display()));
        }
    }
    Error::other(text)
}
