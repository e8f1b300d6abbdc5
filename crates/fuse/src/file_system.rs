//! The interface between the transport and a file system: one request in, one answer out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::reply::{Answer, Reply};
use crate::request::Request;

/// A file system: answers requests, from several threads at a time.
///
/// The transport is compiled for the type that implements it, so a call of
/// [`FileSystem::serve`] costs no dispatch.
pub trait FileSystem: Sync {
    /// Whether `serve` uses [`Reply::send_early`] for large writes. The transport asks once, when
    /// it starts. With io_uring it then copies each WRITE of 256 KiB and more for a thread of its
    /// own, since an answer gives the buffer of the request back to the kernel.
    fn answers_early(&self) -> bool {
        false
    }

    /// Answers one request.
    ///
    /// `reply` is empty and takes the payload of an [`Answer::Done`]. The kernel expects
    /// [`Answer::Silent`] for FORGET, BATCH_FORGET and INTERRUPT and for no other operation.
    /// `ENOSYS` makes the kernel stop asking for many operations (OPEN, FLUSH, ACCESS, POLL).
    ///
    /// The body of `request` and the room of `reply` are buffers of the transport. They are
    /// borrowed until the call returns. The data of a WRITE begin on a page boundary, and so does
    /// the payload of a READ: both suit direct I/O.
    ///
    /// A panic aborts the process.
    fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer;
}

/// Serves, and ends the process on a panic as a power cut would.
pub(crate) fn serve_guarded(
    server: &impl FileSystem,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    catch_unwind(AssertUnwindSafe(|| server.serve(request, reply))).unwrap_or_else(|_| {
        tracing::error!("a violated assertion; stopping as after a power cut");
        std::process::abort()
    })
}
