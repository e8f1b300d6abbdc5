//! The requests to a device.

use std::fs;
use std::ops::{Add, Sub};
use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

const SECTOR_BYTES: u64 = 512;

/// Requests and bytes since some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceCounts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
}

impl DeviceCounts {
    /// Counts of a block device or a partition, by its name in `/sys/class/block`.
    pub fn of_block_device(name: &str) -> Result<DeviceCounts> {
        let path = Path::new("/sys/class/block").join(name).join("stat");
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let field = |index: usize| -> u64 {
            // Flushes are counted since Linux 5.5; a kernel without has fewer fields.
            text.split_whitespace().nth(index).and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        Ok(DeviceCounts {
            reads: field(0),
            read_bytes: field(2) * SECTOR_BYTES,
            writes: field(4),
            write_bytes: field(6) * SECTOR_BYTES,
            flushes: field(15),
        })
    }
}

impl Sub for DeviceCounts {
    type Output = DeviceCounts;

    fn sub(self, earlier: DeviceCounts) -> DeviceCounts {
        DeviceCounts {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            flushes: self.flushes - earlier.flushes,
        }
    }
}

impl Add for DeviceCounts {
    type Output = DeviceCounts;

    fn add(self, other: DeviceCounts) -> DeviceCounts {
        DeviceCounts {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            flushes: self.flushes + other.flushes,
        }
    }
}
