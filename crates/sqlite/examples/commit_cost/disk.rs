//! What the block device under a directory was asked for. Others' requests count too.

use std::fs::{self, File};
use std::ops::{AddAssign, Sub};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Failed;

/// The device.
pub struct Disk {
    directory: File,
    stat: PathBuf,
}

/// Its counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub writes: u64,
    pub bytes: u64,
    pub flushes: u64,
}

impl Disk {
    /// The device under `directory`.
    pub fn of(directory: &Path) -> Result<Disk, Failed> {
        let device = fs::metadata(directory)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(Disk { directory: File::open(directory)?, stat })
    }

    /// Its counters now; zeros when it has none.
    pub fn counts(&self) -> Counts {
        let text = fs::read_to_string(&self.stat).unwrap_or_default();
        let fields: Vec<u64> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Counts { writes: field(4), bytes: field(6) * 512, flushes: field(15) }
    }

    /// Has everything written that is only in the page cache yet.
    pub fn write_back(&self) -> Result<(), Failed> {
        Ok(rustix::fs::syncfs(&self.directory)?)
    }
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            writes: self.writes - before.writes,
            bytes: self.bytes - before.bytes,
            flushes: self.flushes - before.flushes,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.writes += more.writes;
        self.bytes += more.bytes;
        self.flushes += more.flushes;
    }
}

/// What rounds of one side cost the device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    commits: u64,
    /// While it ran.
    during: Counts,
    /// What was written back behind it.
    behind: Counts,
}

impl Asked {
    /// Runs `round` of so many commits, then has everything written back.
    pub fn during<T>(
        &mut self,
        disk: &Disk,
        commits: u64,
        round: impl FnOnce() -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let before = disk.counts();
        let result = round()?;
        let between = disk.counts();
        disk.write_back()?;
        self.commits += commits;
        self.during += between - before;
        self.behind += disk.counts() - between;
        Ok(result)
    }

    /// Writes, flushes, KiB and KiB with what was written back behind, each a commit.
    pub fn each(&self) -> String {
        let each = |count: u64| count as f64 / self.commits as f64;
        let kib = |bytes: u64| each(bytes) / 1024.0;
        let all_bytes = self.during.bytes + self.behind.bytes;
        let (writes, flushes) = (each(self.during.writes), each(self.during.flushes));
        format!(
            "{writes:>8.2} {flushes:>8.2} {:>8.2} {:>8.2}",
            kib(self.during.bytes),
            kib(all_bytes)
        )
    }
}

/// The heads of the columns of [`Asked::each`].
pub const COLUMNS: &str = "  writes  flushes      KiB  all KiB";
