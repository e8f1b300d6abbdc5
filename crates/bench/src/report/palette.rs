//! One colour a system, the same in every figure.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use crate::results::SectionFile;

/// Systems that are in many figures: peers in cold colours, OneJournal in warm ones.
const KNOWN: [(&str, RGBColor); 16] = [
    ("ext4 no journal", RGBColor(0xa6, 0xa6, 0xa6)),
    ("ext4 ordered", RGBColor(0x3b, 0x76, 0xaf)),
    ("ext4 journal", RGBColor(0x1d, 0x3f, 0x66)),
    ("ext4 journal+async", RGBColor(0x5a, 0x4f, 0x9c)),
    ("ext4 writeback+async", RGBColor(0x7f, 0xa8, 0xd1)),
    ("ext4 fast_commit", RGBColor(0x62, 0xb8, 0xd8)),
    ("XFS", RGBColor(0x2e, 0x8b, 0x57)),
    ("btrfs", RGBColor(0x8f, 0xbf, 0x5a)),
    ("fuse2fs", RGBColor(0x8c, 0x6d, 0x4f)),
    ("OneJournal", RGBColor(0xd6, 0x45, 0x1b)),
    ("OneJournal journal", RGBColor(0xf0, 0xa5, 0x6b)),
    ("OneJournal ordered", RGBColor(0x9c, 0x2c, 0x3f)),
    ("OneJournal wasteless", RGBColor(0xe0, 0xb0, 0x2f)),
    ("OneJournal delta", RGBColor(0xe8, 0x7d, 0x86)),
    ("OneJournal, NVRAM", RGBColor(0xa8, 0x2f, 0x8e)),
    ("OneJournal, SQLite extension", RGBColor(0xf2, 0xc1, 0x3d)),
];

/// For all others, in the order in which they appear.
const OTHERS: [RGBColor; 10] = [
    RGBColor(0x00, 0x9e, 0x9a),
    RGBColor(0xc9, 0x7a, 0xb8),
    RGBColor(0x6b, 0x7f, 0x2a),
    RGBColor(0x41, 0x4a, 0x4c),
    RGBColor(0xb8, 0x8a, 0x00),
    RGBColor(0x8f, 0x6f, 0xd6),
    RGBColor(0x3f, 0xa3, 0x4d),
    RGBColor(0xff, 0x8c, 0x42),
    RGBColor(0x70, 0x9f, 0xb0),
    RGBColor(0x7a, 0x3b, 0x1d),
];

/// The colours of a report.
pub struct Palette {
    others: BTreeMap<String, RGBColor>,
}

impl Palette {
    /// Of everything in these results.
    pub fn of(files: &[SectionFile]) -> Palette {
        let mut others = BTreeMap::new();
        for row in files.iter().flat_map(|file| &file.section.rows) {
            if known(&row.system).is_none() && !others.contains_key(&row.system) {
                others.insert(row.system.clone(), OTHERS[others.len() % OTHERS.len()]);
            }
        }
        Palette { others }
    }

    /// The colour of a system.
    pub fn colour(&self, system: &str) -> RGBColor {
        let found = known(system).or_else(|| self.others.get(system).copied());
        found.unwrap_or(RGBColor(0, 0, 0))
    }
}

fn known(system: &str) -> Option<RGBColor> {
    KNOWN.iter().find(|(name, _)| *name == system).map(|(_, colour)| *colour)
}
