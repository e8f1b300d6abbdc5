//! The block device on which a system is set up. It counts requests, and is made from what
//! `--device` names.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{major, minor};

use super::Lab;
use super::counts::DeviceCounts;
use super::emulated::EmulatedDisk;
use super::loop_device::{self, Part};
use super::teardown::Teardown;
use crate::device::Parameters;
use crate::error::{Error, Result};

const MIB: u64 = 1 << 20;

/// A kind of device, as `--device` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// `loop`: a file in the scratch folder.
    Scratch,
    /// `memory`: a file in a tmpfs: no latency.
    Memory,
    /// A preset of `onejournal-bench device`, with `KEY=VALUE` after `+`.
    Emulated(String),
    /// `dir:PATH`: a file in that directory.
    Directory(PathBuf),
    /// `block:PATH`: a block device, whose content is lost; each system gets a part of it.
    Block(PathBuf),
}

impl Device {
    /// An emulated device of this preset.
    pub fn preset(name: &'static str) -> Device {
        Device::Emulated(name.to_owned())
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        Ok(match text.split_once(':') {
            Some(("dir", path)) => Device::Directory(path.into()),
            Some(("block", path)) => Device::Block(path.into()),
            _ if text == "loop" => Device::Scratch,
            _ if text == "memory" => Device::Memory,
            _ => {
                let settings = text.replace('+', ",");
                let mut parameters =
                    Parameters::preset("zero").map_err(|error| error.to_string())?;
                parameters
                    .apply(&settings)
                    .map_err(|error| format!("{error}; or loop, memory, dir:PATH, block:PATH"))?;
                Device::Emulated(settings)
            }
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Scratch => f.write_str("loop"),
            Device::Memory => f.write_str("memory"),
            Device::Emulated(settings) => f.write_str(&settings.replace(',', "+")),
            Device::Directory(path) => write!(f, "dir:{}", path.display()),
            Device::Block(path) => write!(f, "block:{}", path.display()),
        }
    }
}

/// A block device for one system.
pub struct Medium {
    /// The path to make a file system on, and to mount.
    pub block: PathBuf,
    disk: Option<EmulatedDisk>,
    is_on_disk: bool,
}

impl Medium {
    /// Makes one of `size_mib`; `label` names its files.
    pub fn prepare(
        lab: &Lab,
        device: &Device,
        label: &str,
        size_mib: u32,
        teardown: &mut Teardown,
    ) -> Result<Medium> {
        let file_name = format!("{label}.img");
        let mut on_file = |dir: &Path| -> Result<PathBuf> {
            let file = dir.join(&file_name);
            write_image(&file, size_mib, teardown)?;
            loop_device::attach(&file, None, teardown)
        };
        let block = match device {
            Device::Scratch => on_file(lab.scratch())?,
            Device::Memory => on_file(lab.memory())?,
            Device::Directory(dir) => on_file(dir)?,
            Device::Block(path) => {
                let part = lab.claim_part(path, u64::from(size_mib) * MIB, teardown)?;
                loop_device::attach(path, Some(part), teardown)?
            }
            Device::Emulated(settings) => {
                let dir = lab.scratch().join(format!("{label}-disk"));
                let program = &lab.programs().bench;
                let disk = EmulatedDisk::start(program, dir, size_mib, settings, teardown)?;
                let block = loop_device::attach(&disk.file(), None, teardown)?;
                return Ok(Medium { block, disk: Some(disk), is_on_disk: false });
            }
        };
        Ok(Medium { block, disk: None, is_on_disk: *device != Device::Memory })
    }

    /// The block device that a directory's file system is on, for its counts.
    pub fn below(dir: &Path) -> Result<Medium> {
        let device = dir.metadata().map_err(Error::at(dir))?.dev();
        let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        let found = std::fs::canonicalize(&link).map_err(Error::at(Path::new(&link)))?;
        let block = Path::new("/dev").join(found.file_name().unwrap_or_default());
        Ok(Medium { block, disk: None, is_on_disk: true })
    }

    /// The emulated disk below it, if it is one.
    pub fn disk(&self) -> Option<&EmulatedDisk> {
        self.disk.as_ref()
    }

    /// Whether it is on a disk of this machine.
    pub fn is_on_disk(&self) -> bool {
        self.is_on_disk
    }

    /// The requests to the device so far.
    pub fn counts(&self) -> Result<DeviceCounts> {
        match &self.disk {
            Some(disk) => disk.counts(),
            None => {
                let name = self.block.file_name().unwrap_or_default().to_string_lossy();
                DeviceCounts::of_block_device(&name)
            }
        }
    }
}

/// Writes all of a file, so that no system pays for allocating the file below it.
fn write_image(path: &Path, size_mib: u32, teardown: &mut Teardown) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create_new(path)?;
        let block = vec![0; MIB as usize];
        for _ in 0..size_mib {
            file.write_all(&block)?;
        }
        file.sync_all()
    };
    let image = path.to_owned();
    teardown.push(format!("removing {}", path.display()), move || {
        std::fs::remove_file(&image).map_err(Error::at(&image))
    });
    write().map_err(Error::at(path))
}

/// Parts of block devices that are in use.
#[derive(Default)]
pub struct Parts {
    claimed: Vec<(PathBuf, u64, u64)>,
}

impl Parts {
    /// The first part of `len_bytes` that is free.
    pub fn claim(&mut self, path: &Path, len_bytes: u64, capacity_bytes: u64) -> Option<Part> {
        let mut taken: Vec<(u64, u64)> = self.of(path).collect();
        taken.sort_unstable();
        let mut start_bytes = 0;
        for (start, len) in taken {
            if start - start_bytes >= len_bytes {
                break;
            }
            start_bytes = start + len;
        }
        if start_bytes + len_bytes > capacity_bytes {
            return None;
        }
        self.claimed.push((path.to_owned(), start_bytes, len_bytes));
        Some(Part { start_bytes, len_bytes })
    }

    /// Releases a part.
    pub fn release(&mut self, path: &Path, start_bytes: u64) {
        self.claimed.retain(|(device, start, _)| device != path || *start != start_bytes);
    }

    fn of(&self, path: &Path) -> impl Iterator<Item = (u64, u64)> {
        let ours = self.claimed.iter().filter(move |(device, ..)| device == path);
        ours.map(|(_, start, len)| (*start, *len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_they_are_shown() {
        let names = ["loop", "memory", "ssd311", "ssd840+flush_us=7", "dir:/x", "block:/dev/x"];
        for text in names {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert!("ssd312".parse::<Device>().unwrap_err().contains("dir:PATH"));
    }

    #[test]
    fn parts_of_a_device_do_not_overlap_and_are_used_again() {
        let (mut parts, path) = (Parts::default(), Path::new("/dev/x"));
        let mut claim = |len| parts.claim(path, len, 100).map(|part| part.start_bytes);
        assert_eq!((claim(40), claim(40), claim(40)), (Some(0), Some(40), None));
        parts.release(path, 0);
        assert_eq!(parts.claim(path, 30, 100).unwrap().start_bytes, 0);
        assert_eq!(parts.claim(path, 20, 100).unwrap().start_bytes, 80);
        assert!(parts.claim(path, 20, 100).is_none());
    }
}
