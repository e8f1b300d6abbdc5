//! The functions of the C interface that take a stream.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use log::{Log, Lsn, Stream};

use crate::argument::{IoVec, bytes, json, pieces, put, put_optional, put_text};
use crate::cursor::OpenCursor;
use crate::error::guard;
use crate::handle::{Handle, Kind, borrow, give, take};

/// What an `onejournal_stream` holds. The stream goes before its log.
pub(crate) struct OpenStream {
    stream: Stream,
    log: Arc<Log>,
}

impl OpenStream {
    pub(crate) fn new(stream: Stream, log: Arc<Log>) -> OpenStream {
        OpenStream { stream, log }
    }
}

impl Kind for OpenStream {
    const MAGIC: u64 = u64::from_le_bytes(*b"OJCSTR\0\x01");
    const WHAT: &'static str = "stream";
}

/// See the header.
///
/// # Safety
///
/// The arguments are what the header asks for; so for all functions here.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_stream_close(stream: *mut Handle<OpenStream>) -> c_int {
    // SAFETY: the caller gave a handle, or NULL, and closes it once and last.
    guard(|| unsafe { take(stream) }.map(drop))
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_stream_release(stream: *const Handle<OpenStream>) -> c_int {
    // SAFETY: the caller gave an open handle, or NULL.
    guard(|| unsafe { borrow(stream) }.map(|open| open.stream.release()))
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_append(
    stream: *const Handle<OpenStream>,
    data: *const c_void,
    len: usize,
    lsn: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave an open handle and the bytes, or NULL.
        let (open, data) = unsafe { (borrow(stream)?, bytes(data, len)?) };
        let at = open.stream.append(data)?;
        // SAFETY: the caller gave a place, or NULL.
        unsafe { put_optional(lsn, at.0, "LSN") }
    })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_append_batch(
    stream: *const Handle<OpenStream>,
    records: *const IoVec,
    count: usize,
    lsn: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave an open handle and an array of so many pieces, or NULL.
        let (open, records) = unsafe { (borrow(stream)?, pieces(records, count)?) };
        let at = open.stream.append_batch(&records)?;
        // SAFETY: the caller gave a place, or NULL.
        unsafe { put_optional(lsn, at.0, "LSN") }
    })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_sync(stream: *const Handle<OpenStream>, lsn: u64) -> c_int {
    // SAFETY: the caller gave an open handle, or NULL.
    guard(|| unsafe { Ok(borrow(stream)?.stream.sync(Lsn(lsn))?) })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_flush(stream: *const Handle<OpenStream>) -> c_int {
    // SAFETY: the caller gave an open handle, or NULL.
    guard(|| unsafe { Ok(borrow(stream)?.stream.flush()?) })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_truncate_before(
    stream: *const Handle<OpenStream>,
    lsn: u64,
) -> c_int {
    // SAFETY: the caller gave an open handle, or NULL.
    guard(|| unsafe { Ok(borrow(stream)?.stream.truncate_before(Lsn(lsn))?) })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_positions(
    stream: *const Handle<OpenStream>,
    head: *mut u64,
    end: *mut u64,
    appended: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave an open handle, or NULL.
        let OpenStream { stream, .. } = unsafe { borrow(stream) }?;
        // SAFETY: the caller gave places, or NULL.
        unsafe {
            put_optional(head, stream.head().0, "head")?;
            put_optional(end, stream.end().0, "end")?;
            put_optional(appended, stream.appended().0, "end of what was appended")
        }
    })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_stream_stat(
    stream: *const Handle<OpenStream>,
    text: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller gave an open handle, a buffer of that capacity, and a place, or NULL.
    guard(|| unsafe { put_text(&json(&borrow(stream)?.stream.stat()?), text, capacity, len) })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_cursor_open(
    stream: *const Handle<OpenStream>,
    lsn: u64,
    cursor: *mut *mut Handle<OpenCursor>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave an open handle and a place, or NULL.
        let open = unsafe {
            put(cursor, std::ptr::null_mut(), "cursor")?;
            borrow(stream)?
        };
        let reader = open.stream.read_from(Lsn(lsn))?;
        // SAFETY: as above.
        unsafe { put(cursor, give(OpenCursor::new(reader, open.log.clone())), "cursor") }
    })
}
