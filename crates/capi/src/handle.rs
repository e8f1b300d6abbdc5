//! Handles: boxes that C holds. Each begins with a magic word, which says what it is and that it is
//! open.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Failure, Result};

/// What a handle may hold.
pub(crate) trait Kind {
    /// The first word of an open handle.
    const MAGIC: u64;
    /// For messages.
    const WHAT: &'static str;
}

/// What C has a pointer to.
#[repr(C)]
pub(crate) struct Handle<T> {
    magic: AtomicU64,
    value: T,
}

/// Hands `value` to C.
pub(crate) fn give<T: Kind>(value: T) -> *mut Handle<T> {
    Box::into_raw(Box::new(Handle { magic: AtomicU64::new(T::MAGIC), value }))
}

/// Why a pointer is no open handle, as far as that can be told.
fn check<T: Kind>(handle: *const Handle<T>) -> Result<()> {
    if handle.is_null() {
        return Err(Failure::usage(format!("the {} is NULL", T::WHAT)));
    }
    if !handle.is_aligned() {
        return Err(Failure::usage(format!("{handle:p} is no {}", T::WHAT)));
    }
    Ok(())
}

fn refuse<T: Kind>() -> Failure {
    Failure::usage(format!("not an open {}", T::WHAT))
}

/// What an open handle holds.
///
/// # Safety
///
/// `handle` is NULL, or points to readable memory. If that memory begins with the magic word, it is
/// a handle that no thread closes while the result is used.
pub(crate) unsafe fn borrow<'a, T: Kind>(handle: *const Handle<T>) -> Result<&'a T> {
    check(handle)?;
    // SAFETY: not NULL and aligned; the caller says that it can be read.
    let magic = unsafe { &(*handle).magic };
    if magic.load(Ordering::Acquire) != T::MAGIC {
        return Err(refuse::<T>());
    }
    // SAFETY: it begins with the magic word, so it came from `give`, and the caller keeps it open.
    Ok(unsafe { &(*handle).value })
}

/// Takes a handle back from C; `None` for NULL.
///
/// # Safety
///
/// As [`borrow`]'s. No other code uses the handle from now on.
pub(crate) unsafe fn take<T: Kind>(handle: *mut Handle<T>) -> Result<Option<T>> {
    if handle.is_null() {
        return Ok(None);
    }
    check(handle)?;
    // SAFETY: not NULL and aligned; the caller says that it can be read.
    let magic = unsafe { &(*handle).magic };
    if magic.compare_exchange(T::MAGIC, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(refuse::<T>());
    }
    // SAFETY: it began with the magic word, so it came from `give`, and a second close is refused.
    Ok(Some(unsafe { Box::from_raw(handle) }.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(u32);
    impl Kind for One {
        const MAGIC: u64 = 1111;
        const WHAT: &'static str = "one";
    }
    struct Other;
    impl Kind for Other {
        const MAGIC: u64 = 2222;
        const WHAT: &'static str = "other";
    }

    #[test]
    fn pointers_other_than_open_handles_are_refused() {
        let one = give(One(5));
        // SAFETY: `one` is open; NULL and misaligned pointers are refused before they are read; the
        // memory after `one` can be read as any handle's first word.
        unsafe {
            assert_eq!(borrow(one).ok().map(|one: &One| one.0), Some(5));
            assert!(borrow::<One>(std::ptr::null()).is_err());
            assert!(borrow::<One>(one.byte_add(1)).is_err());
            assert!(borrow::<Other>(one.cast()).is_err());
            assert!(take::<Other>(one.cast()).is_err());
            assert!(take::<One>(std::ptr::null_mut()).is_ok_and(|one| one.is_none()));
            assert!(take(one).is_ok_and(|one| one.is_some()));
        }
        let closed = Handle { magic: AtomicU64::new(0), value: One(6) };
        // SAFETY: it is readable memory.
        assert!(unsafe { borrow::<One>(&raw const closed) }.is_err());
    }
}
