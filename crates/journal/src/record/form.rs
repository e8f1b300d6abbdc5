//! Record forms: how the change of one block becomes bytes, and how bytes become a block again.
//!
//! This file is the interface between records and codecs. Records carry a form number and bytes;
//! which codec made them, and what that codec needs, is known here only.

use std::sync::{Arc, LazyLock};

use super::codec::extent::Ranges;
use super::codec::window::{Known, Window};
use super::codec::{CodecError, DeltaCodec, copy, extent, runs, xor_lzo};
use crate::faults::{self, Fault};
use crate::format::{
    FORM_BLOCK, FORM_COPY, FORM_DELTA, FORM_EXTENT, FORM_PATCH, FORM_SPARSE, FORM_XOR_LZO,
};
use crate::types::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock};

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
pub const FORM_COUNT: usize = 7;

/// A change that needs more bytes is logged as the whole block. That costs hardly more, and the
/// checkpoint need not write the block if it is logged again.
const CHANGE_LIMIT_BYTES: usize = BLOCK_BYTES * 3 / 4;

static ZEROS: BlockBytes = [0; BLOCK_BYTES];
static ZEROS_REF: LazyLock<BlockRef> = LazyLock::new(|| Arc::new(ZEROS));

/// The name of a record form, as in `docs/format/journal.md`.
pub fn form_name(form: u8) -> Option<&'static str> {
    match form {
        FORM_BLOCK => Some("block"),
        FORM_SPARSE => Some("sparse"),
        FORM_EXTENT => Some("extent"),
        FORM_DELTA => Some("delta"),
        FORM_XOR_LZO => Some("xor-lzo"),
        FORM_COPY => Some("copy"),
        FORM_PATCH => Some("patch"),
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

/// With copies, a difference with more bytes is a patch or a copy instead.
const SMALL_CHANGE_BYTES: usize = 48;

/// So many bytes more are worth it if the region then holds all of the block: its older versions
/// need not be brought home with the regions before.
const WHOLE_WORTH_BYTES: usize = 512;

/// What is known of a block when its change is encoded.
pub(crate) struct Change<'a> {
    pub home: HomeBlock,
    pub form: &'a Form,
    pub version: &'a BlockBytes,
    /// The previous version as recovery will have it. `None`: unknown, so the record must be whole.
    pub base: Option<&'a BlockBytes>,
    /// Whether the region of the record already has a whole record of the block.
    pub is_whole_in_region: &'a dyn Fn() -> bool,
    /// What the record's region holds. Empty without [`DeltaCodec::Copies`].
    pub window: &'a Window,
}

impl Change<'_> {
    /// Appends the smallest encoding that the form allows to `out`, and returns its form. For
    /// `FORM_BLOCK` nothing is appended, because the bytes are the version itself.
    pub(crate) fn encode(&self, codec: DeltaCodec, out: &mut Vec<u8>) -> u8 {
        let (version, limit) = (self.version, CHANGE_LIMIT_BYTES);
        let encoded = match (self.form, self.base, codec) {
            (Form::Extent(ranges), Some(_), _) => {
                extent::encode(ranges, version, limit, out).map(|_| FORM_EXTENT)
            }
            (_, _, DeltaCodec::Copies) => Some(self.encode_copies(out)),
            (Form::Block, _, _) => None,
            (Form::Delta, Some(base), DeltaCodec::XorLzo) => {
                let may = faults::is(Fault::XorWithoutBase) || (self.is_whole_in_region)();
                let xor = || xor_lzo::encode(base, version, limit, out);
                may.then(xor).flatten().map(|_| FORM_XOR_LZO)
            }
            (Form::Delta, None, DeltaCodec::XorLzo) | (Form::Delta, _, DeltaCodec::Whole) => None,
            (_, None, _) => runs::encode(&ZEROS, version, limit, out).map(|_| FORM_SPARSE),
            (Form::Delta, Some(base), DeltaCodec::Runs) => {
                runs::encode(base, version, limit, out).map(|_| FORM_DELTA)
            }
        };
        match codec {
            // An extent that is too large.
            DeltaCodec::Copies => encoded.unwrap_or_else(|| self.encode_copies(out)),
            _ => encoded.unwrap_or(FORM_BLOCK),
        }
    }

    /// As a small difference, a patch or copies: what costs least.
    fn encode_copies(&self, out: &mut Vec<u8>) -> u8 {
        let version = self.version;
        let base = self.base.filter(|_| *self.form == Form::Delta);
        let small = |base| runs::encode(base, version, SMALL_CHANGE_BYTES, out).is_some();
        if base.is_some_and(small) {
            return FORM_DELTA;
        }
        let search = copy::Search::new(self.window, self.home, version);
        let (start, mut limit) = (out.len(), CHANGE_LIMIT_BYTES);
        let patch = base.and_then(|base| copy::encode(&search, version, base, limit, out));
        if let Some(patch) = patch {
            if !patch.needs_base {
                return FORM_COPY;
            }
            if (self.is_whole_in_region)() {
                return FORM_PATCH;
            }
            limit = limit.min(patch.bytes + WHOLE_WORTH_BYTES);
        }
        match copy::encode(&search, version, &ZEROS, limit, out) {
            Some(copy) => {
                let end = out.len();
                out.drain(start..end - copy.bytes);
                FORM_COPY
            }
            None if patch.is_some() => FORM_PATCH,
            None => FORM_BLOCK,
        }
    }
}

/// Checks the bytes of a change, so that a replay that fails has written nothing.
pub(crate) fn check(form: u8, change: &[u8]) -> Result<(), CodecError> {
    match form {
        FORM_BLOCK => Ok(()),
        FORM_XOR_LZO => xor_lzo::apply(&mut [0; BLOCK_BYTES], change),
        FORM_COPY | FORM_PATCH => copy::check(change),
        _ => runs::check(change).map(drop),
    }
}

/// Makes the new version of a block from the previous one and what its region holds.
pub(crate) fn apply(
    form: u8,
    change: &[u8],
    (home, block): (HomeBlock, &mut BlockBytes),
    window: &Window,
) -> Result<(), CodecError> {
    match form {
        FORM_BLOCK => block.copy_from_slice(change),
        FORM_XOR_LZO => xor_lzo::apply(block, change)?,
        FORM_COPY => {
            let mut zeros = ZEROS;
            copy::apply((home, &mut zeros), change, window)?;
            *block = zeros;
        }
        FORM_PATCH => copy::apply((home, block), change, window)?,
        FORM_SPARSE => {
            block.fill(0);
            runs::apply(block, change)?;
        }
        _ => runs::apply(block, change)?,
    }
    Ok(())
}

/// Whether a change in this form makes so few bytes that it is no source of its own.
fn is_small(form: u8) -> bool {
    form == FORM_DELTA
}

/// Whether changes in this form copy what their region holds.
pub(crate) fn copies(form: u8) -> bool {
    matches!(form, FORM_COPY | FORM_PATCH)
}

/// Adds a change that was encoded to the engine's window.
pub(crate) fn note_encoded(
    window: &mut Window,
    (home, version): (HomeBlock, &BlockRef),
    base: Option<&BlockBytes>,
    (form, change): (u8, &[u8]),
) {
    if window.is_wanted() {
        let is_base = |bytes: &BlockRef| {
            !is_whole(form) && (base == Some(bytes) || faults::is(Fault::CopyOfAnotherBase))
        };
        let base = window.version(home).filter(|(bytes, _)| is_base(bytes));
        let known = known_after(form, change, base.map(|(_, known)| known));
        let mut known = known.expect("it was encoded here");
        if faults::is(Fault::CopyOfUnknown) {
            known = Known::ALL;
        }
        window.note(home, version.clone(), known, is_small(form));
    }
}

/// Makes a version as a change says, and adds it to the window of recovery.
pub(crate) fn note_decoded(
    window: &mut Window,
    home: HomeBlock,
    (form, change): (u8, &[u8]),
) -> Result<(), CodecError> {
    let base = window.version(home);
    let mut version = base.map_or_else(|| ZEROS_REF.clone(), |(bytes, _)| bytes.clone());
    let known = known_after(form, change, base.map(|(_, known)| known))?;
    apply(form, change, (home, Arc::make_mut(&mut version)), window)?;
    window.note(home, version, known, is_small(form));
    Ok(())
}

/// Which bytes of a version are known, if these of the previous one are.
fn known_after(form: u8, change: &[u8], base: Option<&Known>) -> Result<Known, CodecError> {
    if is_whole(form) {
        return Ok(Known::ALL);
    }
    let mut known = base.cloned().unwrap_or_else(Known::none);
    match form {
        FORM_PATCH => copy::made_by(change, &mut known)?,
        // Its bytes depend on all of the previous version.
        FORM_XOR_LZO => {}
        _ => runs::made_by(change, &mut known)?,
    }
    Ok(known)
}
