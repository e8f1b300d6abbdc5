//! Record forms: how the change of one block becomes bytes, and how bytes become a block again.
//!
//! This file is the interface between records and codecs. Records carry a form number and bytes;
//! which codec made them, and what that codec needs, is known here only.

use std::sync::{Arc, LazyLock};

use super::codec::extent::Ranges;
use super::codec::window::{Entry, Known, Window};
use super::codec::{CodecError, DeltaCodec, copy, extent, runs, xor_lzo};
use crate::faults::{self, Fault};
use crate::format::{
    FORM_BLOCK, FORM_COPY, FORM_DELTA, FORM_EXTENT, FORM_PATCH, FORM_SPARSE, FORM_XOR_LZO,
};
use crate::observer::BlockOwner;
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

/// So many bytes more than a small difference are worth it if later changes can then copy the
/// block.
const HELD_WORTH_BYTES: usize = 64;

/// The search for a block with a small change ends after so many bytes that are not found. They
/// reach from one anchor to the next, and a copy that is found may begin before its anchor.
const UNFOUND_MAX_BYTES: usize = 512;

/// What is known of a block when its change is encoded.
pub(crate) struct Change<'a> {
    pub home: HomeBlock,
    pub owner: BlockOwner,
    pub form: &'a Form,
    pub version: &'a BlockBytes,
    /// The previous version as recovery will have it. `None`: unknown, so the record must be whole.
    pub base: Option<&'a BlockBytes>,
    /// Whether the region of the record already has a whole record of the block.
    pub is_whole_in_region: &'a dyn Fn() -> bool,
    /// What the record's region holds. Empty without [`DeltaCodec::Copies`].
    pub window: &'a Window,
    /// Whether all of it is searched for the block's bytes.
    pub is_searched: bool,
}

/// How a change was encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub form: u8,
    /// Whether the window could be searched, and the slot of a block of which it has many bytes.
    pub search: Option<Option<usize>>,
}

impl Outcome {
    fn without_search(form: u8) -> Outcome {
        Outcome { form, search: None }
    }
}

impl Change<'_> {
    /// Appends the smallest encoding that the form allows to `out`. For `FORM_BLOCK` nothing is
    /// appended, because the bytes are the version itself.
    pub(crate) fn encode(&self, codec: DeltaCodec, out: &mut Vec<u8>) -> Outcome {
        let (version, limit) = (self.version, CHANGE_LIMIT_BYTES);
        if let (Form::Extent(ranges), Some(_)) = (self.form, self.base)
            && extent::encode(ranges, version, limit, out).is_some()
        {
            return Outcome::without_search(FORM_EXTENT);
        }
        let encoded = match (self.form, self.base, codec) {
            (_, _, DeltaCodec::Copies) => return self.encode_copies(out),
            (Form::Block | Form::Extent(_), Some(_), _) | (Form::Block, None, _) => None,
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
        Outcome::without_search(encoded.unwrap_or(FORM_BLOCK))
    }

    /// As a small difference, a patch or copies: what costs least.
    fn encode_copies(&self, out: &mut Vec<u8>) -> Outcome {
        let version = self.version;
        let base = self.base.filter(|_| *self.form == Form::Delta);
        let small = base.and_then(|base| runs::encode(base, version, SMALL_CHANGE_BYTES, out));
        if let Some(small_bytes) = small {
            return self.encode_small(small_bytes, out);
        }
        let search = copy::Search::new(self.window, (self.home, version), self.is_searched);
        let outcome = |form, made: Option<copy::Made>| {
            let found = made.and_then(|made| made.found);
            Outcome { form, search: (!self.window.is_empty()).then_some(found) }
        };
        let (start, mut limit) = (out.len(), CHANGE_LIMIT_BYTES);
        let patch = base.and_then(|base| copy::encode(&search, version, base, limit, out));
        if let Some(patch) = patch {
            if !patch.needs_base {
                return outcome(FORM_COPY, Some(patch));
            }
            if (self.is_whole_in_region)() {
                return outcome(FORM_PATCH, Some(patch));
            }
            limit = limit.min(patch.bytes + WHOLE_WORTH_BYTES);
        }
        let copy = copy::encode(&search, version, &ZEROS, limit, out);
        if let Some(copy) = copy {
            let end = out.len();
            out.drain(start..end - copy.bytes);
        }
        let form = match (copy, patch) {
            (Some(_), _) => FORM_COPY,
            (None, Some(_)) => FORM_PATCH,
            (None, None) => FORM_BLOCK,
        };
        outcome(form, copy.or(patch))
    }

    /// As a small difference, which is the end of `out`. Or as copies, if they cost hardly more and
    /// the window does not have the block yet.
    fn encode_small(&self, small_bytes: usize, out: &mut Vec<u8>) -> Outcome {
        let is_held = || self.window.version(self.home).is_some_and(|held| held.known.is_all());
        if self.owner == BlockOwner::NOBODY || self.window.is_empty() || is_held() {
            return Outcome::without_search(FORM_DELTA);
        }
        let (end, limit) = (out.len(), small_bytes + HELD_WORTH_BYTES);
        let copy = self.is_searched.then(|| {
            let search = copy::Search::new(self.window, (self.home, self.version), true);
            copy::encode(&search, self.version, &ZEROS, UNFOUND_MAX_BYTES, out)
        });
        match copy.flatten() {
            Some(copy) if copy.bytes <= limit => {
                out.drain(end - small_bytes..end);
                Outcome { form: FORM_COPY, search: Some(copy.found) }
            }
            _ => {
                out.truncate(end);
                Outcome { form: FORM_DELTA, search: Some(None) }
            }
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

/// Adds a version whose change was encoded to the engine's window. Finds out which bytes are known.
pub(crate) fn note_encoded(
    window: &mut Window,
    new: Entry,
    base: Option<&BlockRef>,
    (form, change): (u8, &[u8]),
    is_found: bool,
) {
    if window.is_wanted() {
        let is_base = |bytes: &BlockRef| {
            !is_whole(form) && (base == Some(bytes) || faults::is(Fault::CopyOfAnotherBase))
        };
        let base = window.version(new.home).filter(|entry| is_base(&entry.version));
        let known = known_after(form, change, base.map(|entry| &entry.known));
        let mut known = known.expect("it was encoded here");
        if faults::is(Fault::CopyOfUnknown) {
            known = Known::ALL;
        }
        let new = Entry { known, ..new };
        if !is_small(form) {
            window.add(new, is_found);
        } else {
            // Few blocks have bytes of metadata.
            let is_found = is_found && new.owner != BlockOwner::NOBODY;
            window.replace_newest(new, is_found);
        }
    }
}

/// Makes a version as a change says, and adds it to the window of recovery.
pub(crate) fn note_decoded(
    window: &mut Window,
    home: HomeBlock,
    (form, change): (u8, &[u8]),
) -> Result<(), CodecError> {
    if is_small(form) {
        return match window.version_mut(home) {
            Some(Entry { version, known, .. }) => {
                runs::made_by(change, known)?;
                runs::apply(Arc::make_mut(version), change)
            }
            None => runs::check(change).map(drop),
        };
    }
    let base = window.version(home);
    let mut version = base.map_or_else(|| ZEROS_REF.clone(), |entry| entry.version.clone());
    let known = known_after(form, change, base.map(|entry| &entry.known))?;
    apply(form, change, (home, Arc::make_mut(&mut version)), window)?;
    window.add(Entry { home, owner: BlockOwner::NOBODY, version, known }, false);
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
