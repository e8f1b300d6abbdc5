//! Systems under test: file systems with their settings. They are set up on a medium, mounted,
//! counted and taken down by the same calls.
//!
//! A [`System`] is a recipe; [`System::set_up`] makes a [`Running`] from it. [`start`] sets up
//! several for one experiment, leaves out unavailable ones, and records that for the report. Client
//! variants ([`client`]) change the environment of client programs, not the file system.

pub mod client;
mod ext4;
mod fuse2fs;
mod node;
mod onejournal;
mod other;
mod running;
mod scratch_folder;

pub use ext4::Ext4;
pub use fuse2fs::Fuse2fs;
pub use node::Node;
pub use onejournal::{JOURNAL_MIB, Journal, OneJournal};
pub use other::{Btrfs, F2fs, Nilfs2, Xfs, XfsLogOn};
pub use running::{Asked, Counts, Running, WrittenParts};
pub use scratch_folder::ScratchFolder;

use crate::error::Result;
use crate::lab::{Device, Lab, Program, interrupt, is_installed};
use crate::results::Section;

/// Where a system is set up.
pub struct Site<'a> {
    /// The kind of device.
    pub device: &'a Device,
    /// Its size.
    pub size_mib: u32,
    /// Suffix of the names of systems that are set up here.
    suffix: String,
}

impl<'a> Site<'a> {
    /// A device of this kind and size.
    pub fn new(device: &'a Device, size_mib: u32) -> Site<'a> {
        Site { device, size_mib, suffix: String::new() }
    }

    /// For a variant of a system that may exist at the same time.
    fn variant(&self, suffix: &str) -> Site<'a> {
        let suffix = format!("{}{suffix}", self.suffix);
        Site { device: self.device, size_mib: self.size_mib, suffix }
    }
}

/// A recipe.
pub trait System {
    /// Its name in the report. The same name has the same colour everywhere.
    fn name(&self) -> String;

    /// Why it is not available on this machine.
    fn missing(&self) -> Option<String>;

    /// Why it cannot be set up on this kind of device.
    fn missing_on(&self, _device: &Device) -> Option<String> {
        self.missing()
    }

    /// Makes it, mounts it, and registers how to take it down. If it fails in the middle,
    /// everything is taken down.
    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running>;
}

/// Sets up all available systems without latency, then gives the devices their latency. Records in
/// `section` what is left out.
pub fn start(
    lab: &Lab,
    systems: &[Box<dyn System>],
    site: &Site<'_>,
    section: &mut Section,
) -> Result<Vec<Running>> {
    let mut all = Vec::new();
    for system in systems {
        interrupt::check()?;
        if let Some(why) = system.missing_on(site.device) {
            section.leave_out(&system.name(), &why);
            continue;
        }
        eprintln!("onejournal-bench: setting up {} on {}", system.name(), site.device);
        if !section.systems.contains(&system.name()) {
            section.systems.push(system.name());
        }
        all.push(system.set_up(lab, site)?);
    }
    for running in &all {
        running.sync()?;
    }
    for running in &all {
        running.slow_down()?;
    }
    Ok(all)
}

/// Takes all systems down. Returns the first failure.
pub fn stop(all: Vec<Running>) -> Result<()> {
    let downs = all.into_iter().rev().map(Running::tear_down).collect::<Vec<_>>();
    downs.into_iter().collect()
}

/// Why a file system of the kernel, or its mkfs program, is missing.
fn missing_kernel_system(file_system: &str, programs: &[&str]) -> Option<String> {
    let listed = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_there = listed.lines().any(|line| line.split_whitespace().last() == Some(file_system));
    if !is_there && Program::new("modprobe").arg(file_system).run().is_err() {
        return Some(format!("the kernel has no {file_system}"));
    }
    missing_programs(programs)
}

fn missing_programs(programs: &[&str]) -> Option<String> {
    let program = programs.iter().find(|program| !is_installed(program))?;
    Some(format!("{program} is not installed"))
}
