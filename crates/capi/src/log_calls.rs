//! The functions of the C interface that take a log.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use log::Log;

use crate::argument::{json, put, put_text, text};
use crate::error::{Failure, guard};
use crate::handle::{Handle, Kind, borrow, give, take};
use crate::options::{RawOptions, number_of, options};
use crate::stream::OpenStream;

/// What an `onejournal_log` holds.
pub(crate) struct OpenLog(Arc<Log>);

impl Kind for OpenLog {
    const MAGIC: u64 = u64::from_le_bytes(*b"OJCLOG\0\x01");
    const WHAT: &'static str = "log";
}

/// See the header.
///
/// # Safety
///
/// The arguments are what the header asks for; so for all functions here.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_open(
    path: *const c_char,
    raw: *const RawOptions,
    log: *mut *mut Handle<OpenLog>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave a text, options and a place, or NULL, as the header asks.
        unsafe {
            put(log, std::ptr::null_mut(), "log")?;
            let opened = Log::open(text(path, "path")?, &options(raw)?)?;
            put(log, give(OpenLog(Arc::new(opened))), "log")
        }
    })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_close(log: *mut Handle<OpenLog>) -> c_int {
    guard(|| {
        // SAFETY: the caller gave a handle, or NULL, and closes it once and last.
        let closed = unsafe { take(log) }?;
        // Streams of it that are open keep the log.
        match closed.and_then(|OpenLog(log)| Arc::into_inner(log)) {
            Some(log) => Ok(log.close()?),
            None => Ok(()),
        }
    })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_durability(
    log: *const Handle<OpenLog>,
    durability: *mut c_int,
) -> c_int {
    // SAFETY: the caller gave an open handle and a place, or NULL.
    guard(|| unsafe { put(durability, number_of(borrow(log)?.0.durability()), "durability") })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_uuid(log: *const Handle<OpenLog>, uuid: *mut c_char) -> c_int {
    // SAFETY: the caller gave an open handle, or NULL, and room for 33 bytes.
    guard(|| unsafe { put_text(borrow(log)?.0.uuid(), uuid, 33, std::ptr::null_mut()) })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_stat(
    log: *const Handle<OpenLog>,
    text: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller gave an open handle, a buffer of that capacity, and a place, or NULL.
    guard(|| unsafe { put_text(&json(&borrow(log)?.0.stat()), text, capacity, len) })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_list(
    log: *const Handle<OpenLog>,
    text: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave an open handle, or NULL.
        let names = unsafe { borrow(log) }?.0.stream_names()?;
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        // SAFETY: the caller gave a buffer of that capacity and a place, or NULL.
        unsafe { put_text(&lines, text, capacity, len) }
    })
}

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_log_remove(
    log: *const Handle<OpenLog>,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller gave an open handle and a text, or NULL.
    guard(|| unsafe { Ok(borrow(log)?.0.remove_stream(text(name, "name")?)?) })
}

/// `ONEJOURNAL_CREATE`
const CREATE: c_uint = 1;

/// See the header.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
unsafe extern "C" fn onejournal_stream_open(
    log: *const Handle<OpenLog>,
    name: *const c_char,
    flags: c_uint,
    stream: *mut *mut Handle<OpenStream>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller gave an open handle, a text and a place, or NULL.
        let (OpenLog(log), name) = unsafe {
            put(stream, std::ptr::null_mut(), "stream")?;
            (borrow(log)?, text(name, "name")?)
        };
        let opened = match flags {
            CREATE => log.stream(name)?,
            0 => log
                .existing_stream(name)?
                .ok_or_else(|| log::LogError::NotFound(format!("there is no stream {name}")))?,
            _ => return Err(Failure::usage(format!("flags {flags:#x} are not known"))),
        };
        // SAFETY: as above.
        unsafe { put(stream, give(OpenStream::new(opened, log.clone())), "stream") }
    })
}
