//! The counters of `/proc/diskstats`.

use std::fs;
use std::io;

/// Unit of the counters, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;

/// What the kernel has counted of a block device since it appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStats {
    /// The device's numbers, major and minor.
    pub device: (u32, u32),
    /// Its name in `/dev`.
    pub name: String,
    /// Bytes that the machine has written to it.
    pub written_bytes: u64,
    /// Flushes that it has completed. `None`: the kernel does not count them (before 5.5). It
    /// counts none of a partition.
    pub flush_count: Option<u64>,
}

/// The counters of all block devices.
pub fn disk_stats() -> io::Result<Vec<DiskStats>> {
    Ok(parse_disk_stats(&fs::read_to_string("/proc/diskstats")?))
}

/// The counters in the text of the file. Lines that cannot be parsed are left out.
pub fn parse_disk_stats(text: &str) -> Vec<DiskStats> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<DiskStats> {
    // Documentation/admin-guide/iostats.rst has the columns, after three that name the
    // device.
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |index: usize| columns.get(index).and_then(|text| text.parse::<u64>().ok());
    let part = |index: usize| number(index).and_then(|number| u32::try_from(number).ok());
    Some(DiskStats {
        device: (part(0)?, part(1)?),
        name: (*columns.get(2)?).to_owned(),
        written_bytes: number(9)?.saturating_mul(SECTOR_BYTES),
        flush_count: number(18),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_old_and_new_kernels_are_read() {
        let text = "   7       0 loop0 4225 6 10487434 3104 81005 22453 11457600 29628 0 16936 \
             41167 0 0 0 0 39371 8434\n\
             \x20 8       1 sda1 1 2 3 4 5 6 70 8 9 10 11\n\
             garbage\n\
             8 2 sda2 1 2 3\n\
             259 0 nvme0n1 0 0 0 0 1 0 8 0 0 0 0 0 0 0 0\n";
        let found = parse_disk_stats(text);
        let names: Vec<&str> = found.iter().map(|stats| stats.name.as_str()).collect();
        assert_eq!(names, ["loop0", "sda1", "nvme0n1"]);
        assert_eq!((found[0].device, found[0].written_bytes), ((7, 0), 11_457_600 * 512));
        assert_eq!(found[0].flush_count, Some(39_371));
        assert_eq!((found[1].device, found[1].written_bytes), ((8, 1), 70 * 512));
        assert_eq!((found[1].flush_count, found[2].flush_count), (None, None));
    }

    #[test]
    fn this_machine_has_the_file() {
        let found = disk_stats().expect("it is read");
        assert!(found.iter().all(|stats| !stats.name.is_empty()));
    }
}
