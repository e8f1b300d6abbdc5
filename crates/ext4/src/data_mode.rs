//! The data modes (`docs/reference/modes.md`).

/// The attribute that holds the mode of a file, or of what is made in a directory.
pub const DATA_MODE_XATTR: &str = "user.onejournal.data";

/// Where file data goes (`data=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataMode {
    /// In place, before the metadata that reaches it commits (ext4's default).
    Ordered,
    /// In place, whenever.
    Writeback,
    /// Through the journal, whole blocks (FAST'14).
    Journal,
    /// Through the journal, the bytes that were written (Okeanos).
    Wasteless,
    /// As `Wasteless` below a threshold, else in place (Okeanos).
    Selective,
    /// Through the journal, the bytes that differ (DJFS).
    Delta,
    /// As `Delta`, but large appends in place: the same promise, and large data is written once.
    Auto,
}

impl DataMode {
    /// All of them.
    pub const ALL: [DataMode; 7] = [
        DataMode::Ordered,
        DataMode::Writeback,
        DataMode::Journal,
        DataMode::Wasteless,
        DataMode::Selective,
        DataMode::Delta,
        DataMode::Auto,
    ];

    /// The word for it.
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

    /// A crash leaves a prefix of history, contents of files included.
    pub fn is_atomic(self) -> bool {
        match self {
            DataMode::Journal | DataMode::Wasteless | DataMode::Delta | DataMode::Auto => true,
            DataMode::Ordered | DataMode::Writeback | DataMode::Selective => false,
        }
    }

    /// Never writes data in place.
    pub fn is_journaled(self) -> bool {
        matches!(self, DataMode::Journal | DataMode::Wasteless | DataMode::Delta)
    }

    /// The number for it, as ioctls speak of it: 1 and up, in the order of [`DataMode::ALL`].
    pub fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The mode with this number.
    pub fn from_number(number: u32) -> Option<DataMode> {
        DataMode::ALL.into_iter().find(|mode| mode.number() == number)
    }
}
