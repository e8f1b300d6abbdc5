//! The folders of a run: one on disk (`BASE/onejournal-bench/PID`) and one in memory (a tmpfs).
//! Both are removed at the end. Each run holds a lock on its folder. A folder whose lock is free
//! was left by a killed run, and the next run clears it: processes with its mark, mounts, loop
//! devices, settings, files.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::loop_device;
use super::program::{self, MARK, Program};
use crate::error::{Error, Result};

const MEMORY: &str = "/dev/shm";
const NAME: &str = "onejournal-bench";
const LOCK: &str = "lock";
/// Mounts may be on loop devices over files in other mounts, so both are undone in turns.
const TURNS_MAX: usize = 8;

/// The folders of this run.
pub struct Scratch {
    dir: PathBuf,
    memory: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes them below `base`, after clearing what killed runs left there.
    pub fn new(base: &Path) -> Result<Scratch> {
        let parent = base.join(NAME);
        fs::create_dir_all(&parent).map_err(Error::at(&parent))?;
        clear_leftovers(&parent)?;
        let dir = parent.join(std::process::id().to_string());
        let memory = memory_of(&dir);
        for path in [&dir, &memory] {
            fs::create_dir(path).map_err(Error::at(path))?;
        }
        let path = dir.join(LOCK);
        let lock = File::create(&path).map_err(Error::at(&path))?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|errno| Error::at(&path)(errno.into()))?;
        program::mark(&dir);
        Ok(Scratch { dir, memory, _lock: lock })
    }

    /// On disk.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// In memory.
    pub fn memory(&self) -> &Path {
        &self.memory
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Everything in it was taken down before; when that failed, this takes the rest.
        if let Err(error) = clear(&self.dir) {
            eprintln!("onejournal-bench: clearing {}: {error}", self.dir.display());
        }
    }
}

fn memory_of(dir: &Path) -> PathBuf {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    Path::new(MEMORY).join(format!("{NAME}-{}", name.unwrap_or_default()))
}

fn clear_leftovers(parent: &Path) -> Result<()> {
    for entry in fs::read_dir(parent).map_err(Error::at(parent))? {
        let dir = entry.map_err(Error::at(parent))?.path();
        let is_free = match File::open(dir.join(LOCK)) {
            Ok(lock) => match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(Errno::WOULDBLOCK) => false,
                Err(errno) => return Err(Error::at(&dir)(errno.into())),
            },
            // Killed before it had a lock, or another run that is about to: its process tells.
            Err(_) => !Path::new("/proc").join(dir.file_name().unwrap_or_default()).exists(),
        };
        if is_free {
            eprintln!("onejournal-bench: clearing what a killed run left: {}", dir.display());
            clear(&dir)?;
        }
    }
    Ok(())
}

/// Undoes everything that a run may have set up below `dir` and in memory.
fn clear(dir: &Path) -> Result<()> {
    let memory = memory_of(dir);
    for pid in marked_processes(dir) {
        if !serves_a_mount(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    for _ in 0..TURNS_MAX {
        let mounts = mounts_below(&[dir, &memory])?;
        let loops = loop_device::backed_by_files_below(&[dir, &memory])?;
        if mounts.is_empty() && loops.is_empty() {
            break;
        }
        for mount in mounts.iter().rev() {
            let _ = Program::new("umount").arg(mount).uninterrupted().run();
        }
        for path in loops {
            let _ = loop_device::detach(&path);
        }
    }
    let busy = mounts_below(&[dir, &memory])?;
    if let Some(mount) = busy.first() {
        return Err(Error::other(format!("{} stays mounted", mount.display())));
    }
    for path in [&memory, dir] {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::at(path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Processes that the run of `dir` has started, without this one.
fn marked_processes(dir: &Path) -> Vec<Pid> {
    let mark = [MARK.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
    let own = std::process::id().cast_signed();
    let pids = super::processes::all().filter(|pid| *pid != own).filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    });
    pids.filter_map(Pid::from_raw).collect()
}

/// FUSE servers end when their mount is gone and they have written what they hold.
fn serves_a_mount(pid: Pid) -> bool {
    let files = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).into_iter().flatten();
    let mut targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target == Path::new("/dev/fuse"))
}

/// Mount points below one of `dirs`, in the order of mounting.
fn mounts_below(dirs: &[&Path]) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(Error::io("mountinfo"))?;
    let paths = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(paths.filter(|path| dirs.iter().any(|dir| path.starts_with(dir))).collect())
}
