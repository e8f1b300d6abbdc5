//! Where the journal of an ext4 volume lies, OneJournal's as the kernel's.

use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};
use crate::lab::Program;

const BLOCK_BYTES: u64 = 4096;

/// The journal inode's extents, in bytes; none without a journal of its own.
pub fn extents(device: &Path) -> Result<Vec<Range<u64>>> {
    // A volume without a journal has an empty inode 8.
    let output = Program::new("debugfs").args(["-R", "dump_extents -l <8>"]).arg(device).run()?;
    parse(&output).ok_or_else(|| Error::other(format!("debugfs printed no extents:\n{output}")))
}

/// The lines of leaves, such as ` 0/ 0   1/  1     0 -  4095   98304 - 102399   4096`.
fn parse(output: &str) -> Option<Vec<Range<u64>>> {
    let mut extents = Vec::new();
    for line in output.lines().filter(|line| line.contains('/')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let dashes: Vec<usize> = (0..words.len()).filter(|index| words[*index] == "-").collect();
        let physical = *dashes.get(1)?;
        let first: u64 = words.get(physical - 1)?.parse().ok()?;
        let last: u64 = words.get(physical + 1)?.parse().ok()?;
        extents.push(first * BLOCK_BYTES..(last + 1) * BLOCK_BYTES);
    }
    Some(extents)
}

#[cfg(test)]
mod tests {
    #[test]
    fn extents_of_a_journal() {
        let output = "\
Level Entries       Logical              Physical Length Flags
 0/ 0   1/  2     0 -  4095   98304 - 102399   4096
 0/ 0   2/  2  4096 -  4097      10 -     11      2
";
        let found = super::parse(output).unwrap();
        assert_eq!(found, [402_653_184..419_430_400, 40_960..49_152]);
        assert_eq!(super::parse("").unwrap(), []);
        assert!(super::parse(" 0/ 0   1/  1     0 -  4095   98304").is_none());
    }
}
