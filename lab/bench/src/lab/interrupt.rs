//! SIGINT and SIGTERM set a flag. Waits and workloads check it and return, so that everything that
//! was set up is taken down. A second signal ends the program at once; the next run removes what it
//! left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Result};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

const STATUS_INTERRUPTED: i32 = 130;

/// From now on the signals set the flag.
pub fn install() -> Result<()> {
    let is_set = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let second =
            flag::register_conditional_shutdown(signal, STATUS_INTERRUPTED, is_set.clone());
        second
            .and_then(|_| flag::register(signal, is_set.clone()))
            .map_err(Error::io("signal handlers"))?;
    }
    FLAG.get_or_init(|| is_set);
    Ok(())
}

/// Fails after a signal has come. Call it in every long loop.
pub fn check() -> Result<()> {
    match FLAG.get() {
        Some(is_set) if is_set.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}
