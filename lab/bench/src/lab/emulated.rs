//! An emulated disk (`onejournal-bench device`) as a process of its own. It is made without
//! latency, so that setting up is fast, and gets the latency of its preset when measuring begins.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::counts::DeviceCounts;
use super::program::Program;
use super::teardown::Teardown;
use crate::error::{Error, Result};

/// A part of the counters.
#[derive(Deserialize)]
struct Regions {
    regions: BTreeMap<String, Region>,
}

/// Bytes written to a part of a disk.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Region {
    pub write_bytes: u64,
    /// The part that is jbd2's own blocks.
    pub jbd2_bytes: u64,
}

/// A disk that runs.
pub struct EmulatedDisk {
    dir: PathBuf,
    settings: String,
}

impl EmulatedDisk {
    /// Starts one in `dir`, which is made. `settings`: a preset, followed by KEY=VALUE after
    /// commas.
    pub fn start(
        program: &Path,
        dir: PathBuf,
        size_mib: u32,
        settings: &str,
        teardown: &mut Teardown,
    ) -> Result<EmulatedDisk> {
        fs::create_dir(&dir).map_err(Error::at(&dir))?;
        let removed = dir.clone();
        teardown.push(format!("removing {}", dir.display()), move || {
            fs::remove_dir(&removed).map_err(Error::at(&removed))
        });
        let program = Program::new(program).args(["device", "--preset", "zero", "--size-mib"]);
        let mut child = program.arg(size_mib.to_string()).arg(&dir).start()?;
        let line = child.read_line()?;
        if line != "ready" {
            return Err(Error::other(format!("onejournal-bench device said `{line}`")));
        }
        // Ends when it is unmounted, which SIGTERM does.
        teardown.push(format!("ending the disk {}", dir.display()), move || {
            drop(child);
            Ok(())
        });
        Ok(EmulatedDisk { dir, settings: settings.to_owned() })
    }

    /// The disk, a file.
    pub fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Gives it the latency of its preset.
    pub fn slow_down(&self) -> Result<()> {
        self.command(&format!("set {}", self.settings))
    }

    /// Removes its latency.
    pub fn speed_up(&self) -> Result<()> {
        self.command("set zero")
    }

    /// Sends it a command; see [`onejournal_testing::drive::Command`].
    pub fn command(&self, text: &str) -> Result<()> {
        let path = self.dir.join("control");
        fs::write(&path, text).map_err(Error::io(format!("{}: {text}", path.display())))
    }

    /// Its requests so far.
    pub fn counts(&self) -> Result<DeviceCounts> {
        self.counters()
    }

    /// What was written to the regions that were named to it, together.
    pub fn regions(&self) -> Result<Region> {
        let Regions { regions } = self.counters()?;
        Ok(regions.values().fold(Region::default(), |sum, region| Region {
            write_bytes: sum.write_bytes + region.write_bytes,
            jbd2_bytes: sum.jbd2_bytes + region.jbd2_bytes,
        }))
    }

    fn counters<T: DeserializeOwned>(&self) -> Result<T> {
        let path = self.dir.join("counters");
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        serde_json::from_str(&text).map_err(Error::json(path.display().to_string()))
    }
}
