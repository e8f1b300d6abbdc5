//! The kernel's ext4, with each of its kinds of journal.

use std::ops::Range;
use std::path::Path;

use super::{Running, Site, System, missing_kernel_system};
use crate::error::Result;
use crate::lab::{Device, Lab, Program};

/// The size of a journal that is not in the volume, the same as OneJournal's.
const EXTERNAL_MIB: u32 = super::onejournal::JOURNAL_MIB;
const BLOCK_BYTES: u64 = 4096;

/// How ext4 is made and mounted. Always with `noatime`, blocks of 4 KiB, and initialised tables.
#[derive(Clone)]
pub struct Ext4 {
    name: String,
    features: &'static str,
    options: &'static str,
    external: Option<External>,
    /// `None`: in the volume, what mke2fs chooses; elsewhere [`EXTERNAL_MIB`].
    journal_mib: Option<u32>,
}

/// The place of an external journal.
#[derive(Clone)]
enum External {
    /// On another device of the same kind.
    SameKind,
    /// On a device without latency.
    Memory,
    /// On an emulated device of this preset.
    Preset(&'static str),
}

impl Ext4 {
    fn with(name: &str, features: &'static str, options: &'static str) -> Ext4 {
        let name = format!("ext4 {name}");
        Ext4 { name, features, options, external: None, journal_mib: None }
    }

    /// No journal: no consistency after a crash. FAST'14 and DJFS (figure 2) compare with it.
    pub fn no_journal() -> Ext4 {
        Ext4::with("no journal", "^has_journal", "")
    }

    /// `data=ordered`, the default of distributions.
    pub fn ordered() -> Ext4 {
        Ext4::with("ordered", "has_journal", ",data=ordered")
    }

    /// `data=writeback`.
    pub fn writeback() -> Ext4 {
        Ext4::with("writeback", "has_journal", ",data=writeback")
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

    /// The same with a journal of this size, which the name shows.
    pub fn external_in_memory_of_mib(mut self, size_mib: u32) -> Ext4 {
        self.name.push_str(&format!(", journal of {size_mib} MiB in memory"));
        self.external = Some(External::Memory);
        self.journal_mib(size_mib)
    }

    /// With a journal of this size, which the name does not show.
    pub fn journal_mib(mut self, size_mib: u32) -> Ext4 {
        self.journal_mib = Some(size_mib);
        self
    }

    /// The journal on an emulated device of this preset.
    pub fn journal_on(mut self, preset: &'static str) -> Ext4 {
        self.name.push_str(&format!(", journal on {preset}"));
        self.external = Some(External::Preset(preset));
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
        let size_mib = self.journal_mib.unwrap_or(EXTERNAL_MIB);
        if let Some(external) = &self.external {
            let device = match external {
                External::SameKind => site.device.clone(),
                External::Memory => Device::Memory,
                External::Preset(preset) => Device::preset(preset),
            };
            let journal = running.add_journal(lab, &device, size_mib)?;
            mke2fs().args(["-O", "journal_dev"]).arg(&journal).run()?;
            make = make.arg("-J").arg(format!("device={}", journal.display()));
        } else if let Some(size_mib) = self.journal_mib {
            make = make.arg("-J").arg(format!("size={size_mib}"));
        }
        make = make.args(["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]);
        make.arg(running.block()).run()?;
        let extents = match self.external {
            Some(_) => std::iter::once(0..u64::from(size_mib) << 20).collect(),
            None => journal_extents(&running.block())?,
        };
        running.count_journal(&extents)?;
        let mount = Program::new("mount").args(["-t", "ext4", "-o"]);
        let mount = mount.arg(format!("noatime{}", self.options));
        let mount = mount.arg(running.block()).arg(&running.dir);
        running.mount(mount, Program::new("umount"))?;
        Ok(running)
    }
}

/// The byte ranges of the journal in the volume, as debugfs shows its inode. Empty without a
/// journal.
fn journal_extents(volume: &Path) -> Result<Vec<Range<u64>>> {
    let text = Program::new("debugfs").args(["-R", "stat <8>"]).arg(volume).run()?;
    Ok(parse_extents(&text))
}

/// Parses `(0-8191):98304-106495, (8192):7` after `EXTENTS:`, in blocks of 4 KiB.
fn parse_extents(text: &str) -> Vec<Range<u64>> {
    let Some((_, list)) = text.split_once("EXTENTS:") else { return Vec::new() };
    let extent = |word: &str| {
        // Index blocks of the extent tree have letters in their brackets.
        let (logical, blocks) = word.trim_end_matches(',').split_once("):")?;
        logical
            .trim_start_matches('(')
            .starts_with(|first: char| first.is_ascii_digit())
            .then_some(())?;
        let (first, last) = blocks.split_once('-').unwrap_or((blocks, blocks));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(first * BLOCK_BYTES..(last + 1) * BLOCK_BYTES)
    };
    list.split_whitespace().filter_map(extent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_a_journal() {
        let text = "Inode: 8\nEXTENTS:\n(ETB0):1050, (0-3):10-13, (4):7\n";
        assert_eq!(parse_extents(text), [10 * 4096..14 * 4096, 7 * 4096..8 * 4096]);
        assert_eq!(parse_extents("Inode: 8\nSize: 0\n"), []);
    }
}
