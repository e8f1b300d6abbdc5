//! The fuzz targets: crafted journals and volumes, and the properties that must hold for them.
//!
//! An input is a list of instructions, not an image. It says what to change in a journal or volume
//! that the real code made, and whether the checksums are corrected afterwards, as an attacker
//! would ([`journal_reader::craft`], [`volume_open::seal`]). So a few bytes are enough to get past
//! the checksums, and every input is meaningful.
//!
//! ```text
//! fuzz/fuzz_targets/*.rs (libFuzzer, coverage) -\
//!                                                +-> Target::run
//! tests/seeds.rs (seeds and mutations, counted) -/
//!
//! Target::run -> crafted image -> engine -> properties
//! ```
//!
//! A property that does not hold is a panic, which fuzzers report as a finding. Errors of the
//! engine are not findings. The crate does not know FUSE.
//!
//! The modules, from top to bottom:
//!
//! ```text
//!   journal_reader/ volume_open/   what is fuzzed
//!   patch                          a change of some bytes
//!   input mutate
//! ```

pub mod input;
pub mod journal_reader;
pub mod mutate;
pub mod patch;
pub mod volume_open;

/// Something that is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Scan and recovery of a journal, on a block device and on NVRAM.
    JournalReader,
    /// Opening, reading and changing a volume.
    VolumeOpen,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::JournalReader, Target::VolumeOpen];

    /// Its name, which is also the name of the file in `fuzz/fuzz_targets` and of the folder in
    /// `fuzz/seeds`.
    pub fn name(self) -> &'static str {
        match self {
            Target::JournalReader => "journal_reader",
            Target::VolumeOpen => "volume_open",
        }
    }

    /// Runs the input. Panics if a property does not hold.
    pub fn run(self, input: &[u8]) {
        match self {
            Target::JournalReader => journal_reader::run(input, &Default::default()),
            Target::VolumeOpen => volume_open::run(input, &volume_open::Hands::default()),
        }
    }
}
