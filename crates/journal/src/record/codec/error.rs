//! Why bytes are not an encoding.

/// The bytes are not the output of an encoder of this module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end before the encoding does.
    #[error("the encoding is cut short")]
    Truncated,
    /// The encoding ends before the bytes do.
    #[error("{0} bytes follow the end of the encoding")]
    Trailing(usize),
    /// A run reaches past the end of the block.
    #[error("a run ends at byte {0}, past the end of the block")]
    OutOfBlock(usize),
    /// A number is written longer than it has to be, or two runs touch, or one is empty.
    #[error("the encoding is not canonical at its byte {0}")]
    NotCanonical(usize),
    /// The decompressed size is not the expected one, or is larger than any encoder produces.
    #[error("{found} decompressed bytes where {expected} are expected")]
    WrongSize {
        /// The size, or the largest size that is possible.
        found: usize,
        /// The size that the caller or the format expects.
        expected: usize,
    },
    /// The block that results is not the one that was encoded.
    #[error("a block with the checksum {found:08x} where {expected:08x} is expected")]
    WrongChecksum {
        /// The checksum of the result.
        found: u32,
        /// The checksum in the change.
        expected: u32,
    },
    /// A copy has no source.
    #[error("a copy of bytes that cannot be read: {0}")]
    NoSource(String),
    /// The compressed bytes are damaged.
    #[error("damaged compressed bytes: {0}")]
    Compressed(String),
}
