//! One colour for each system, the same in every figure.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use crate::results::SectionFile;

/// Systems that are in many figures: peers in cold colours, OneJournal in warm ones.
const KNOWN: [(&str, RGBColor); 21] = [
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
    ("OneJournal delta, NVRAM", RGBColor(0x6a, 0x1b, 0x6e)),
    ("OneJournal journal, NVRAM", RGBColor(0xd3, 0x8f, 0xc6)),
    ("OneJournal, SQLite extension", RGBColor(0xf2, 0xc1, 0x3d)),
    ("ext4 journal, ext. journal", RGBColor(0x1b, 0x9a, 0xa0)),
    ("ext4 ordered, ext. journal", RGBColor(0x8f, 0xd0, 0xd3)),
    ("bare durable write", RGBColor(0xa6, 0xa6, 0xa6)),
];

/// Colours of all other peers, in the order of their appearance.
const PEERS: [RGBColor; 8] = [
    RGBColor(0x00, 0x9e, 0x9a),
    RGBColor(0x6b, 0x7f, 0x2a),
    RGBColor(0x41, 0x4a, 0x4c),
    RGBColor(0x8f, 0x6f, 0xd6),
    RGBColor(0x70, 0x9f, 0xb0),
    RGBColor(0x3f, 0xa3, 0x4d),
    RGBColor(0xb0, 0xb8, 0x6a),
    RGBColor(0x5c, 0x6b, 0xc0),
];

/// Colours of other systems with OneJournal.
const OURS: [RGBColor; 8] = [
    RGBColor(0xb8, 0x8a, 0x00),
    RGBColor(0xff, 0x8c, 0x42),
    RGBColor(0x7a, 0x3b, 0x1d),
    RGBColor(0xc9, 0x4f, 0x7c),
    RGBColor(0xe6, 0xc2, 0x8b),
    RGBColor(0x95, 0x3f, 0x9e),
    RGBColor(0xe3, 0x6c, 0x6c),
    RGBColor(0x8d, 0x6e, 0x00),
];

/// The colours of a report.
pub struct Palette {
    others: BTreeMap<String, RGBColor>,
}

impl Palette {
    /// The colours for all systems in these results.
    pub fn of(files: &[SectionFile]) -> Palette {
        let mut others = BTreeMap::new();
        let mut pools = [OURS, PEERS].map(|pool| pool.into_iter().cycle());
        for row in files.iter().flat_map(|file| &file.section.rows) {
            if known(&row.system).is_none() && !others.contains_key(&row.system) {
                let is_ours =
                    ["OneJournal", "SQLite extension"].iter().any(|word| row.system.contains(word));
                let colour = pools[usize::from(!is_ours)].next();
                others.insert(row.system.clone(), colour.expect("it goes round"));
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
