//! The swap space of the machine, as `/proc/swaps` shows it.
//!
//! The kernel refuses writes to a swap file, also writes through a loop device. Its errors
//! are "Text file busy" and "Input/output error", which say nothing of swap.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use crate::below::backing::Backing;
use crate::below::kind::DiskKind;
use crate::below::mount_table::unescape;

/// The swap file or swap device that shares bytes with the file or device that `stat` describes.
pub(crate) fn area_on(kind: DiskKind, stat: &Stat) -> Option<PathBuf> {
    let areas = areas_in(&fs::read("/proc/swaps").ok()?);
    if areas.is_empty() {
        return None;
    }
    let disk = Backing::of(kind, stat).ok()?;
    areas.into_iter().find(|area| backing_of(area).is_some_and(|backing| backing.overlaps(&disk)))
}

/// The paths in the table, whose first line is a heading.
fn areas_in(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n').skip(1);
    let first_words = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    first_words.filter(|word| !word.is_empty()).map(unescape).collect()
}

fn backing_of(area: &Path) -> Option<Backing> {
    let stat = rustix::fs::stat(area).ok()?;
    Backing::of(DiskKind::of(&stat).ok()?, &stat).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_found_in_the_table() {
        let table = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
            /var/my\\040swap                         file\t\t1048572\t\t0\t\t-3\n";
        let areas = [PathBuf::from("/dev/sda2"), PathBuf::from("/var/my swap")];
        assert_eq!(areas_in(table), areas);
        assert!(areas_in(b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n").is_empty());
        assert!(areas_in(b"").is_empty());
    }
}
