//! The kernel's ext4, with each kind of journal it has.

use super::{Running, Site, System, missing_kernel_system};
use crate::error::Result;
use crate::lab::{Device, Lab, Program};

/// The size of an external journal.
const EXTERNAL_MIB: u32 = 64;

/// How ext4 is made and mounted. Always `noatime`, blocks of 4 KiB, tables initialised.
#[derive(Clone)]
pub struct Ext4 {
    name: String,
    features: &'static str,
    options: &'static str,
    external: Option<External>,
}

/// Where an external journal lies.
#[derive(Clone)]
enum External {
    /// On another device of the same kind.
    SameKind,
    /// On a device without latency.
    Memory,
}

impl Ext4 {
    fn with(name: &str, features: &'static str, options: &'static str) -> Ext4 {
        Ext4 { name: format!("ext4 {name}"), features, options, external: None }
    }

    /// No journal at all: no consistency after a crash, the papers' ceiling.
    pub fn no_journal() -> Ext4 {
        Ext4::with("no journal", "^has_journal", "")
    }

    /// `data=ordered`, the default of distributions.
    pub fn ordered() -> Ext4 {
        Ext4::with("ordered", "has_journal", ",data=ordered")
    }

    /// `data=writeback` with `journal_async_commit` (which `ordered` does not allow).
    pub fn writeback_async() -> Ext4 {
        Ext4::with("writeback+async", "has_journal", ",data=writeback,journal_async_commit")
    }

    /// `data=journal`.
    pub fn journal() -> Ext4 {
        Ext4::with("journal", "has_journal", ",data=journal")
    }

    /// `data=journal` with `journal_async_commit`.
    pub fn journal_async() -> Ext4 {
        Ext4::with("journal+async", "has_journal", ",data=journal,journal_async_commit")
    }

    /// `data=ordered` with fast commits.
    pub fn fast_commit() -> Ext4 {
        Ext4::with("fast_commit", "has_journal,fast_commit", ",data=ordered")
    }

    /// The journal on another device of the same kind.
    pub fn external(mut self) -> Ext4 {
        self.name.push_str(", ext. journal");
        self.external = Some(External::SameKind);
        self
    }

    /// The journal on a device without latency.
    pub fn external_in_memory(mut self) -> Ext4 {
        self.name.push_str(", journal in memory");
        self.external = Some(External::Memory);
        self
    }
}

impl System for Ext4 {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn missing(&self) -> Option<String> {
        missing_kernel_system("ext4", &["mke2fs"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = Running::begin(lab, self.name(), site)?;
        let mke2fs = || Program::new("mke2fs").args(["-q", "-F", "-b", "4096"]);
        let mut make = mke2fs().args(["-t", "ext4", "-O", self.features]);
        if let Some(external) = &self.external {
            let device = match external {
                External::SameKind => site.device,
                External::Memory => &Device::Memory,
            };
            let journal = running.add_journal(lab, device, EXTERNAL_MIB)?;
            mke2fs().args(["-O", "journal_dev"]).arg(&journal).run()?;
            make = make.arg("-J").arg(format!("device={}", journal.display()));
        }
        make = make.args(["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]);
        make.arg(running.block()).run()?;
        running.watch_journal()?;
        let mount = Program::new("mount").args(["-t", "ext4", "-o"]);
        let mount = mount.arg(format!("noatime{}", self.options));
        let mount = mount.arg(running.block()).arg(&running.dir);
        running.mount(mount, Program::new("umount"))?;
        Ok(running)
    }
}
