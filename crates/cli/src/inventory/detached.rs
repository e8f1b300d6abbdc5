//! Volumes that were detached while programs had files on them open (`umount -l`). No mount table
//! shows them. Their daemons serve those programs until the last one has closed its files.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Parser;
use serde::{Deserialize, Serialize};

use super::paths;
use crate::process_looks::{Finding, LOOK_LIMIT, ProcessLooks, TELL_LIMIT};
use crate::volumes::{self, ServedVolume};
use crate::{Cli, Command, aside, namespaces, users};

/// A volume that is mounted nowhere and still served.
#[derive(Debug, Serialize, Deserialize)]
pub struct DetachedVolume {
    /// The image or device.
    #[serde(with = "paths::one")]
    pub target: PathBuf,
    /// Its daemon.
    pub pid: i32,
    /// The number of its file system, if it is known.
    device: Option<(u32, u32)>,
}

impl DetachedVolume {
    /// The programs that keep it in use, as text for the user.
    pub fn users(&self) -> String {
        self.device.map_or("cannot be told".into(), users::of)
    }

    /// Their processes.
    pub fn user_pids(&self) -> Vec<i32> {
        self.device.map(users::pids_of).unwrap_or_default()
    }
}

impl Finding for DetachedVolume {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.target.as_os_str().len()
    }
}

/// A daemon, with the number of its file system if that is known.
impl Finding for (i32, Option<(u32, u32)>) {}

/// All detached volumes that are visible, and whether all processes could be looked at. Another
/// process looks, and is left behind if it takes too long.
pub fn detached() -> (Vec<DetachedVolume>, bool) {
    let told = aside::told_within(["look", "detached"], 2 * LOOK_LIMIT + TELL_LIMIT);
    let volumes = told.lines.iter().filter_map(|line| serde_json::from_str(line).ok());
    let mut volumes: Vec<DetachedVolume> = volumes.collect();
    volumes.sort_unstable_by_key(|volume| volume.pid);
    (volumes, told.is_all)
}

/// The same in the process that looks.
pub fn look_for_detached() -> (Vec<DetachedVolume>, bool) {
    let (daemons, is_all) = ProcessLooks::new().look(LOOK_LIMIT, |pid| {
        let device = volumes::is_serving(pid).then(|| host::fuse_connection(pid)).flatten();
        Vec::from_iter(device.map(|device| (pid, device)))
    });
    if daemons.is_empty() {
        return (Vec::new(), is_all);
    }
    // Read after the processes: a volume that was being mounted then is in a table now.
    let (mounts, is_all_mounts) = namespaces::all_mounts();
    let devices: HashSet<(u32, u32)> = mounts.iter().map(|(_, entry)| entry.device).collect();
    let is_mounted = move |pid, device: Option<(u32, u32)>| match device {
        Some(device) => devices.contains(&device),
        None => volumes::serves_any(pid, &mounts),
    };
    let (volumes, is_all_again) = ProcessLooks::new().look(LOOK_LIMIT, move |pid| {
        let daemon = daemons.iter().find(|(daemon, _)| *daemon == pid);
        let detached = daemon.filter(|(pid, device)| !is_mounted(*pid, *device));
        Vec::from_iter(detached.and_then(|(pid, device)| seen(*pid, *device)))
    });
    (volumes, is_all && is_all_again && is_all_mounts)
}

/// Describes the volume of a process. `None`: the process has ended.
fn seen(pid: i32, device: Option<(u32, u32)>) -> Option<DetachedVolume> {
    let open = volumes::media_of(pid);
    let named = named_target(pid);
    let is_named =
        |path: &&PathBuf| named.as_ref().is_some_and(|n| n.file_name() == path.file_name());
    // A volume may have its journal elsewhere: the name tells. LABEL= tells nothing; the volume is
    // opened first.
    let target = open.iter().find(is_named).or(open.first())?.clone();
    let of_target = || match ServedVolume::on_target(&target) {
        Ok(Some(volume)) => volume.first_device(),
        _ => None,
    };
    Some(DetachedVolume { pid, device: device.or_else(of_target), target })
}

/// The target on the daemon's command line.
fn named_target(pid: i32) -> Option<PathBuf> {
    match Cli::try_parse_from(host::command_line(pid)).ok()?.command {
        Command::Mount(args) => Some(args.target),
        _ => None,
    }
}
