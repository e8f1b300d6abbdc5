//! Turns arguments from C into Rust values, and results into C's out-parameters.

use std::ffi::{CStr, c_char, c_void};

use crate::error::{Failure, Result};

/// One piece of memory, laid out as POSIX' `struct iovec` on Linux.
#[repr(C)]
pub(crate) struct IoVec {
    base: *const c_void,
    len: usize,
}

/// The text at `text`.
///
/// # Safety
///
/// `text` is NULL, or ends with a NUL and does not change during `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise is the same.
    let found = unsafe { optional_text(text, what) }?;
    found.ok_or_else(|| Failure::usage(format!("the {what} is NULL")))
}

/// As [`text()`]; `None` for NULL.
///
/// # Safety
///
/// As [`text()`]'s.
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL; the caller says that it ends with a NUL and stays as it is.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::usage(format!("the {what} is not UTF-8"))),
    }
}

/// The `len` bytes at `data`.
///
/// # Safety
///
/// `data` is NULL, or points to `len` readable bytes that do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise is the same; bytes need no alignment.
    unsafe { array(data.cast(), len, "data") }
}

/// The bytes of `count` pieces.
///
/// # Safety
///
/// `pieces` is NULL, or an array of `count` pieces that does not change during `'a`. Each piece is
/// as [`bytes`] wants it.
pub(crate) unsafe fn pieces<'a>(pieces: *const IoVec, count: usize) -> Result<Vec<&'a [u8]>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller says that it is NULL or an array of so many.
    let pieces = unsafe { array(pieces, count, "array of records") }?;
    // SAFETY: the caller says so of each piece.
    pieces.iter().map(|piece| unsafe { bytes(piece.base, piece.len) }).collect()
}

/// # Safety
///
/// `data` is NULL, misaligned, or an array of `count` elements that do not change during `'a`.
unsafe fn array<'a, T>(data: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    let len_bytes = count.checked_mul(size_of::<T>());
    if len_bytes.is_none_or(|len_bytes| isize::try_from(len_bytes).is_err()) {
        return Err(Failure::usage(format!("{count} is no length of an {what}")));
    }
    if data.is_null() || !data.is_aligned() {
        return Err(Failure::usage(format!("{data:p} is no {what}")));
    }
    // SAFETY: not NULL, aligned, not too long for a slice; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// The place of an out-parameter that must be there.
///
/// # Safety
///
/// `out` is NULL, misaligned, or can be written.
pub(crate) unsafe fn put<T>(out: *mut T, value: T, what: &str) -> Result<()> {
    if out.is_null() || !out.is_aligned() {
        return Err(Failure::usage(format!("no place for the {what}")));
    }
    // SAFETY: not NULL and aligned; the caller says that it can be written. `write` neither reads
    // nor drops the value that it replaces.
    unsafe { out.write(value) };
    Ok(())
}

/// As [`put`], nothing for NULL.
///
/// # Safety
///
/// As [`put`]'s.
pub(crate) unsafe fn put_optional<T>(out: *mut T, value: T, what: &str) -> Result<()> {
    match out.is_null() {
        true => Ok(()),
        // SAFETY: the caller's promise is the same.
        false => unsafe { put(out, value, what) },
    }
}

/// A structure of counters as text.
pub(crate) fn json(counters: &impl serde::Serialize) -> String {
    serde_json::to_string(counters).expect("plain data")
}

/// Copies `found` and a NUL to `text`; `len` gets their number in any case.
///
/// # Safety
///
/// `text` is NULL or has `capacity` bytes that can be written; `len` as for [`put_optional`].
pub(crate) unsafe fn put_text(
    found: &str,
    text: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> Result<()> {
    let needed_bytes = found.len() + 1;
    // SAFETY: the caller's promise is the same.
    unsafe { put_optional(len, needed_bytes, "length") }?;
    if capacity < needed_bytes {
        return Err(Failure::range(needed_bytes));
    }
    if text.is_null() {
        return Err(Failure::usage("no place for the text"));
    }
    // SAFETY: `text` has at least `needed_bytes` bytes, says the caller, and they are not Rust's.
    unsafe {
        std::ptr::copy_nonoverlapping(found.as_ptr().cast(), text, found.len());
        text.add(found.len()).write(0);
    }
    Ok(())
}
