//! Turns `onejournal_log_options` into the log's options.

use std::ffi::c_char;
use std::time::Duration;

use device::Durability;
use log::Options;

use crate::argument::optional_text;
use crate::error::{Failure, Result};

/// `onejournal_log_options`.
#[repr(C)]
pub(crate) struct RawOptions {
    struct_bytes: usize,
    nvram: *const c_char,
    memory: *const c_char,
    pool_bytes: u64,
    segment_bytes: u64,
    group_bytes: u64,
    full_wait_ms: u32,
    durability: i32,
}

/// The number of a class in C.
pub(crate) fn number_of(durability: Durability) -> i32 {
    match durability {
        Durability::Power => 1,
        Durability::Reboot => 2,
        Durability::Process => 3,
    }
}

/// The options at `raw`; the defaults for NULL.
///
/// # Safety
///
/// `raw` is NULL, misaligned, or `struct_bytes` of it can be read, and its texts end with a NUL.
pub(crate) unsafe fn options(raw: *const RawOptions) -> Result<Options> {
    let mut options = Options::default();
    if raw.is_null() {
        return Ok(options);
    }
    if !raw.is_aligned() {
        return Err(Failure::usage(format!("{raw:p} is no onejournal_log_options")));
    }
    // SAFETY: not NULL and aligned; the caller says that the first member can be read.
    let struct_bytes = unsafe { (*raw).struct_bytes };
    if struct_bytes != size_of::<RawOptions>() {
        let text = format!("onejournal_log_options of {struct_bytes} bytes: set struct_bytes");
        return Err(Failure::usage(text));
    }
    // SAFETY: all of it can be read, then.
    let raw = unsafe { &*raw };
    // SAFETY: the caller says so of both texts.
    let (nvram, memory) = unsafe {
        (optional_text(raw.nvram, "NVRAM directory")?, optional_text(raw.memory, "memory")?)
    };
    options.nvram = nvram.map(Into::into);
    options.memory = memory.map_or(options.memory, Into::into);
    let or_default = |found: u64, default: u64| if found == 0 { default } else { found };
    options.pool_bytes = or_default(raw.pool_bytes, options.pool_bytes);
    options.segment_bytes = or_default(raw.segment_bytes, options.segment_bytes);
    options.group_bytes = or_default(raw.group_bytes, options.group_bytes);
    if raw.full_wait_ms != 0 {
        options.full_wait = Duration::from_millis(raw.full_wait_ms.into());
    }
    options.durability = match raw.durability {
        0 => None,
        number => {
            let all = [Durability::Power, Durability::Reboot, Durability::Process];
            let class = all.into_iter().find(|class| number_of(*class) == number);
            let unknown = || Failure::usage(format!("{number} is no durability"));
            Some(class.ok_or_else(unknown)?)
        }
    };
    Ok(options)
}
