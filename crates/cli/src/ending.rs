//! The signals that end a serving process: SIGTERM, SIGINT and SIGHUP.
//!
//! The first signal unmounts. While programs use the mount, it is detached, and the process ends
//! with the last of them. A signal to a detached mount closes the volume under these programs.

use mount::{Closer, MountHandle};
use signal_hook::iterator::Signals;

use crate::output::plain;
use crate::service_manager::notify;
use crate::{CliError, Result, advice, error, users};

/// Handles the signals in a thread of its own. Each message for the waiting user is passed to
/// `tell`.
pub fn on_signals(
    mut signals: Signals,
    handle: MountHandle,
    closer: Closer,
    tell: fn(&str),
) -> Result<()> {
    let body = move || {
        for _ in signals.forever() {
            // Once it is gone or detached, another file system may be mounted there.
            if handle.is_mounted() {
                end(&handle, tell);
            } else {
                close_and_end(&closer);
            }
        }
    };
    let thread = std::thread::Builder::new().name("oj-signals".into()).spawn(body);
    thread.map(|_| ()).map_err(|error| CliError::new(format!("signals: {error}")))
}

fn end(handle: &MountHandle, tell: fn(&str)) {
    notify("STOPPING=1\nSTATUS=unmounting");
    if handle.unmount().is_ok() {
        return;
    }
    // A process can make a look at its open files wait. So the volume is detached before.
    let device = handle.device();
    if let Err(error) = handle.unmount_lazily() {
        tracing::error!("unmounting: {error}");
        return;
    }
    let users = device.map_or("unknown".into(), users::of);
    // Each line would be another statement to the service manager.
    let text = plain(&format!("waiting for programs that still use it: {users}"));
    notify(&format!("STATUS={text}"));
    tell(&format!("{text}; another signal closes the volume, and they get errors"));
}

/// Ends the process when the volume is closed. If the volume is not served yet, the process
/// continues.
fn close_and_end(closer: &Closer) {
    match closer.close() {
        Some(Ok(())) => std::process::exit(0),
        Some(Err(error)) => {
            tracing::error!("{}", advice::of_session(&error));
            std::process::exit(error::OPERATIONAL.into())
        }
        None => {}
    }
}
