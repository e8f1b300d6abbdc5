//! The functions of the C interface that take a cursor.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use device::sync::Mutex;
use log::{Log, Reader, Record};

use crate::argument::put;
use crate::error::guard;
use crate::handle::{Handle, Kind, borrow, take};

/// What an `onejournal_cursor` holds. The reader goes before its log.
pub(crate) struct OpenCursor {
    /// The reader, and the record that C was shown last.
    place: Mutex<(Reader, Option<Record>)>,
    _log: Arc<Log>,
}

impl OpenCursor {
    pub(crate) fn new(reader: Reader, log: Arc<Log>) -> OpenCursor {
        OpenCursor { place: Mutex::new((reader, None)), _log: log }
    }
}

impl Kind for OpenCursor {
    const MAGIC: u64 = u64::from_le_bytes(*b"OJCCUR\0\x01");
    const WHAT: &'static str = "cursor";
}

/// `onejournal_record`.
#[repr(C)]
pub(crate) struct RawRecord {
    lsn: u64,
    usn: u64,
    data: *const c_void,
    len: usize,
}

/// See the header.
///
/// # Safety
///
/// The arguments are what the header asks for; so for all functions here.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_cursor_close(cursor: *mut Handle<OpenCursor>) -> c_int {
    // SAFETY: the caller gave a handle, or NULL, and closes it once and last.
    guard(|| unsafe { take(cursor) }.map(drop))
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_cursor_next(
    cursor: *const Handle<OpenCursor>,
    record: *mut RawRecord,
) -> c_int {
    guard(|| {
        let end = RawRecord { lsn: 0, usn: 0, data: std::ptr::null(), len: 0 };
        // SAFETY: the caller gave a place and an open handle, or NULL.
        let open = unsafe {
            put(record, end, "record")?;
            borrow(cursor)?
        };
        let (reader, shown) = &mut *open.place.lock();
        *shown = reader.next_record()?;
        let raw = match shown {
            Some(Record { lsn, usn, payload }) => RawRecord {
                lsn: lsn.0,
                usn: usn.0,
                data: payload.as_ptr().cast(),
                len: payload.len(),
            },
            None => RawRecord {
                lsn: Reader::position(reader).0,
                usn: 0,
                data: std::ptr::null(),
                len: 0,
            },
        };
        // SAFETY: the caller gave a place; the record stays in the cursor until the next call.
        unsafe { put(record, raw, "record") }
    })
}
