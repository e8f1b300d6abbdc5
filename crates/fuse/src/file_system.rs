//! The interface between the transport and a file system: one request in, one answer out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::InHeader;
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

    /// Goes on after the request with this header was answered, if [`Reply::go_on`] asked for it:
    /// in the thread that served it, which takes the next request afterwards. Through io_uring the
    /// kernel may hand that thread the next request of any program on its CPU meanwhile, which then
    /// waits for it: the work has to be short.
    fn go_on(&self, _header: &InHeader) {}
}

/// Serves, and ends the process on a panic as a power cut would.
pub(crate) fn serve_guarded(
    server: &impl FileSystem,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    guarded(|| server.serve(request, reply))
}

/// The same for what comes after the answer.
pub(crate) fn go_on_guarded(server: &impl FileSystem, header: &InHeader) {
    guarded(|| server.go_on(header));
}

fn guarded<T>(work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a violated assertion; stopping as after a power cut");
        std::process::abort()
    })
}
