//! Record forms: how the change of one block becomes bytes, and how bytes become a block again.
//!
//! This file is the interface between records and codecs. Records carry a form number and bytes;
//! which codec made them, and what that codec needs, is known here only.

use super::codec::copy::{ReadSource, Sources};
use super::codec::extent::Ranges;
use super::codec::{CodecError, DeltaCodec, copy, extent, runs, xor_lzo};
use crate::faults::{self, Fault};
use crate::format::{FORM_BLOCK, FORM_COPY, FORM_DELTA, FORM_EXTENT, FORM_SPARSE, FORM_XOR_LZO};
use crate::types::{BLOCK_BYTES, BlockBytes};

/// How a change may be written to the journal. The engine takes the smallest encoding that the form
/// allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// The whole block.
    Block,
    /// The bytes that were written since the last commit (as in Okeanos' multiwrite blocks).
    Extent(Ranges),
    /// The bytes that differ from the previous committed version. (DJFS' delta is their XOR.)
    Delta,
}

impl Form {
    /// The form for a block that was changed in this form and, in the same transaction, in `next`.
    pub(crate) fn then(&self, next: &Form) -> Form {
        match (self, next) {
            (Form::Block, _) | (_, Form::Block) => Form::Block,
            (Form::Extent(first), Form::Extent(second)) => {
                let mut both = first.clone();
                both.merge(second);
                Form::Extent(both)
            }
            (Form::Delta, _) | (_, Form::Delta) => Form::Delta,
        }
    }
}

/// Number of record forms; [`form_name`] names them.
pub const FORM_COUNT: usize = 6;

/// A change that needs more bytes is logged as the whole block. That costs hardly more, and the
/// checkpoint need not write the block if it is logged again.
const CHANGE_LIMIT_BYTES: usize = BLOCK_BYTES * 3 / 4;

static ZEROS: BlockBytes = [0; BLOCK_BYTES];

/// The name of a record form, as in `docs/format/journal.md`.
pub fn form_name(form: u8) -> Option<&'static str> {
    match form {
        FORM_BLOCK => Some("block"),
        FORM_SPARSE => Some("sparse"),
        FORM_EXTENT => Some("extent"),
        FORM_DELTA => Some("delta"),
        FORM_XOR_LZO => Some("xor-lzo"),
        FORM_COPY => Some("copy"),
        _ => None,
    }
}

/// Whether a change in this form holds all of its block, so that replay needs nothing earlier.
pub(crate) fn is_whole(form: u8) -> bool {
    matches!(form, FORM_BLOCK | FORM_SPARSE | FORM_COPY)
}

/// Whether a change in this form can be applied only to exactly the previous version. The other
/// forms can be applied to any mixture of earlier versions.
pub(crate) fn needs_exact_base(form: u8) -> bool {
    form == FORM_XOR_LZO
}

/// What is known of a block when its change is encoded.
pub(crate) struct Change<'a> {
    pub form: &'a Form,
    pub version: &'a BlockBytes,
    /// The previous version as recovery will have it. `None`: unknown, so the record must be whole.
    pub base: Option<&'a BlockBytes>,
    /// Whether the region of the record already has a whole record of the block. Only
    /// [`DeltaCodec::XorLzo`] asks this.
    pub is_whole_in_region: &'a dyn Fn() -> bool,
    /// What the record's region holds. Only [`DeltaCodec::Copies`] looks at it.
    pub sources: &'a Sources,
}

impl Change<'_> {
    /// Appends the smallest encoding that the form allows to `out`, and returns its form. For
    /// `FORM_BLOCK` nothing is appended, because the bytes are the version itself.
    pub(crate) fn encode(&self, codec: DeltaCodec, out: &mut Vec<u8>) -> u8 {
        let (version, limit) = (self.version, CHANGE_LIMIT_BYTES);
        let encoded = match (self.form, self.base, codec) {
            (Form::Block, _, _) => None,
            (Form::Delta, Some(base), DeltaCodec::XorLzo) => {
                let may = faults::is(Fault::XorWithoutBase) || (self.is_whole_in_region)();
                let xor = || xor_lzo::encode(base, version, limit, out);
                may.then(xor).flatten().map(|_| FORM_XOR_LZO)
            }
            (Form::Delta, None, DeltaCodec::XorLzo) | (Form::Delta, _, DeltaCodec::Whole) => None,
            (_, None, _) => runs::encode(&ZEROS, version, limit, out).map(|_| FORM_SPARSE),
            (Form::Delta, Some(base), DeltaCodec::Runs | DeltaCodec::Copies) => {
                runs::encode(base, version, limit, out).map(|_| FORM_DELTA)
            }
            (Form::Extent(ranges), Some(_), _) => {
                extent::encode(ranges, version, limit, out).map(|_| FORM_EXTENT)
            }
        };
        let copy = || {
            let may = codec == DeltaCodec::Copies;
            let copied = may.then(|| copy::encode(self.sources, version, limit, out)).flatten();
            copied.map(|_| FORM_COPY)
        };
        encoded.or_else(copy).unwrap_or(FORM_BLOCK)
    }
}

/// Checks the bytes of a change, so that a replay that fails has written nothing.
pub(crate) fn check(form: u8, change: &[u8]) -> Result<(), CodecError> {
    match form {
        FORM_BLOCK => Ok(()),
        FORM_XOR_LZO => xor_lzo::apply(&mut [0; BLOCK_BYTES], change),
        FORM_COPY => copy::check(change),
        _ => runs::check(change).map(drop),
    }
}

/// Makes the new version of `block`, which holds the previous one. `read` reads earlier records of
/// the region.
pub(crate) fn apply(
    form: u8,
    change: &[u8],
    block: &mut BlockBytes,
    read: &mut ReadSource<'_>,
) -> Result<(), CodecError> {
    match form {
        FORM_BLOCK => block.copy_from_slice(change),
        FORM_XOR_LZO => xor_lzo::apply(block, change)?,
        FORM_COPY => copy::apply(block, change, read)?,
        FORM_SPARSE => {
            block.fill(0);
            runs::apply(block, change)?;
        }
        _ => runs::apply(block, change)?,
    }
    Ok(())
}
