//! The data modes (`docs/reference/modes.md`), and what an inode asks for.

/// The attribute that holds the mode of a file, or the mode of new files in a directory.
pub const DATA_MODE_XATTR: &str = "user.onejournal.data";

/// The attribute that declares which writes of a file must be atomic: aligned writes of up to this
/// number of bytes, a decimal number. For a directory: of new files in it.
pub const ATOMIC_XATTR: &str = "user.onejournal.atomic";

/// The attribute of the root directory that holds the largest size that was declared on the volume,
/// a decimal number. It stays when declarations are taken off; no other way to set it exists.
pub const ATOMIC_VOLUME_XATTR: &str = "user.onejournal.atomic_volume";

/// Sizes that can be declared: powers of two in this range.
pub const DECLARED_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 20;

/// Where file data are written (`data=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataMode {
    /// In place, before the commit of the metadata that refer to them (ext4's default).
    Ordered,
    /// In place, at any time.
    Writeback,
    /// Through the journal, whole blocks, as data are with ext4's `data=journal`.
    Journal,
    /// Through the journal, the bytes that were written (an idea of Okeanos).
    Wasteless,
    /// A write below a threshold as `Wasteless`, otherwise in place. (Okeanos decides for each of
    /// its blocks.)
    Selective,
    /// Through the journal, the bytes that differ (an idea of DJFS).
    Delta,
    /// As `Delta`, but large appends are written in place: the same promise, and large data are
    /// written once.
    Auto,
}

impl DataMode {
    /// All modes.
    pub const ALL: [DataMode; 7] = [
        DataMode::Ordered,
        DataMode::Writeback,
        DataMode::Journal,
        DataMode::Wasteless,
        DataMode::Selective,
        DataMode::Delta,
        DataMode::Auto,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            DataMode::Ordered => "ordered",
            DataMode::Writeback => "writeback",
            DataMode::Journal => "journal",
            DataMode::Wasteless => "wasteless",
            DataMode::Selective => "selective",
            DataMode::Delta => "delta",
            DataMode::Auto => "auto",
        }
    }

    /// The mode with this name.
    pub fn from_name(name: &str) -> Option<DataMode> {
        DataMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether a crash leaves a prefix of history, including the contents of files.
    pub fn is_atomic(self) -> bool {
        match self {
            DataMode::Journal | DataMode::Wasteless | DataMode::Delta | DataMode::Auto => true,
            DataMode::Ordered | DataMode::Writeback | DataMode::Selective => false,
        }
    }

    /// Whether it never writes data in place.
    pub fn is_journaled(self) -> bool {
        matches!(self, DataMode::Journal | DataMode::Wasteless | DataMode::Delta)
    }

    /// Its number, as ioctls use it: 1 and up, in the order of [`DataMode::ALL`].
    pub fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The mode with this number.
    pub fn from_number(number: u32) -> Option<DataMode> {
        DataMode::ALL.into_iter().find(|mode| mode.number() == number)
    }
}

/// What the attributes of an inode ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// A data mode of its own.
    pub(crate) mode: Option<DataMode>,
    /// Aligned writes of up to so many bytes are declared to need to be atomic ([`ATOMIC_XATTR`]).
    pub(crate) declared_bytes: Option<u64>,
}

/// Bits of the mode in [`Asked::code`]. The bits above have the declaration: how often its bytes
/// are twice [`HALF_OF_SMALLEST`], or 0.
const MODE_BITS: u32 = 3;
const HALF_OF_SMALLEST: u64 = *DECLARED_BYTES.start() / 2;

impl Asked {
    /// The mode in effect on a volume with the mode `default`. A declared inode never takes a
    /// default whose writes are not atomic.
    pub(crate) fn mode_with(self, default: DataMode) -> DataMode {
        match self.mode {
            Some(mode) => mode,
            None if self.declared_bytes.is_some() && !default.is_atomic() => DataMode::Auto,
            None => default,
        }
    }

    /// All of it in one byte, below 128.
    pub(crate) fn code(self) -> u8 {
        let mode = self.mode.map_or(0, |mode| mode as u8 + 1);
        let doublings = self.declared_bytes.map_or(0, |bytes| (bytes / HALF_OF_SMALLEST).ilog2());
        mode | u8::try_from(doublings << MODE_BITS).expect("nine sizes at most")
    }

    /// What [`Asked::code`] was made of.
    pub(crate) fn from_code(code: u8) -> Asked {
        let mode = DataMode::from_number(u32::from(code) & ((1 << MODE_BITS) - 1));
        let doublings = code >> MODE_BITS;
        let declared_bytes = (doublings > 0).then(|| HALF_OF_SMALLEST << doublings);
        Asked { mode, declared_bytes }
    }
}

/// The bytes that a value of [`ATOMIC_XATTR`] or [`ATOMIC_VOLUME_XATTR`] declares; `None` if it is
/// not such a value.
pub fn parse_declared(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let bytes: u64 = text.parse().ok()?;
    let is_size = bytes.is_power_of_two() && DECLARED_BYTES.contains(&bytes);
    (is_size && bytes.to_string() == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_and_declaration_fits_into_seven_bits() {
        for mode in DataMode::ALL.into_iter().map(Some).chain([None]) {
            let sizes = (12..=20).map(|log2| Some(1 << log2));
            for declared_bytes in sizes.chain([None]) {
                let asked = Asked { mode, declared_bytes };
                assert!(asked.code() < 128);
                assert_eq!(Asked::from_code(asked.code()), asked);
            }
        }
    }

    /// The truth table: own mode, declaration, default.
    #[test]
    fn a_declared_inode_takes_no_default_that_tears() {
        for default in DataMode::ALL {
            let asks_nothing = Asked::default();
            assert_eq!(asks_nothing.mode_with(default), default);
            let declared = Asked { declared_bytes: Some(8192), ..asks_nothing };
            let kept = if default.is_atomic() { default } else { DataMode::Auto };
            assert_eq!(declared.mode_with(default), kept);
            for mode in DataMode::ALL {
                for asked in [asks_nothing, declared] {
                    assert_eq!(Asked { mode: Some(mode), ..asked }.mode_with(default), mode);
                }
            }
        }
    }

    #[test]
    fn a_declaration_is_a_power_of_two() {
        assert_eq!(parse_declared(b"4096"), Some(4096));
        assert_eq!(parse_declared(b"1048576"), Some(1 << 20));
        for bad in
            ["", "0", "2048", "5000", "2097152", "04096", "+4096", "4096 ", "4K", "-4096", "yes"]
        {
            assert_eq!(parse_declared(bad.as_bytes()), None, "{bad}");
        }
    }
}
