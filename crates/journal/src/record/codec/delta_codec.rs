//! The encodings of a delta, and the needs of each.

use crate::types::BLOCK_BYTES;

/// The encodings of a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaCodec {
    /// Changed byte runs as after-images: [`super::runs`].
    Runs,
    /// Small differences as `Runs`; other changes copy bytes that their region already holds:
    /// [`super::copy`]. A record with many such blocks is smaller, and takes longer to encode.
    Copies,
    /// DJFS' own encoding (XOR, LZO), with the whole block first in each region:
    /// [`super::xor_lzo`].
    XorLzo,
    /// None: where the others encode a delta, the record has the whole block, as JBD2's. No record
    /// is compressed, and each fills whole blocks.
    Whole,
}

impl DeltaCodec {
    /// The step of a new incarnation on a medium with this step.
    pub(crate) fn step_bytes(self, of_medium: usize) -> usize {
        if self == DeltaCodec::Whole { BLOCK_BYTES } else { of_medium }
    }

    /// The room that a region must have before a record is encoded for it, if the largest record
    /// of the transaction has `record_bytes_max`.
    pub(crate) fn room_bytes(self, record_bytes_max: usize) -> usize {
        match self {
            // In another region the record would have whole blocks, and another size.
            DeltaCodec::XorLzo => record_bytes_max,
            DeltaCodec::Runs | DeltaCodec::Copies | DeltaCodec::Whole => 0,
        }
    }

    /// Whether payloads may be compressed.
    pub(crate) fn may_pack(self) -> bool {
        self != DeltaCodec::Whole
    }
}
