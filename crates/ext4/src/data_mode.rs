//! The data modes (`docs/reference/modes.md`).

/// The attribute that holds the mode of a file, or the mode of new files in a directory.
pub const DATA_MODE_XATTR: &str = "user.onejournal.data";

/// Where file data are written (`data=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataMode {
    /// In place, before the commit of the metadata that refer to them (ext4's default).
    Ordered,
    /// In place, at any time.
    Writeback,
    /// Through the journal, whole blocks (FAST'14).
    Journal,
    /// Through the journal, the bytes that were written (Okeanos).
    Wasteless,
    /// Below a threshold as `Wasteless`, otherwise in place (Okeanos).
    Selective,
    /// Through the journal, the bytes that differ (DJFS).
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
