//! The name of the process while it closes the volume.

/// The name of a process that answers no more requests, and ends when the volume is closed.
pub const CLOSING_NAME: &str = "oj-closing";

/// Gives this process that name. Other commands then know that the volume is free soon.
pub(crate) fn mark_closing() {
    // The name of the first thread is that of the process, whichever thread writes it.
    if let Err(error) = std::fs::write("/proc/self/comm", CLOSING_NAME) {
        tracing::debug!(%error, "the name of the process stays");
    }
}
