//! The interface between the transport and a file system: one request in, one answer out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::reply::{Answer, Reply};
use crate::request::Request;

/// Something that answers requests, from several threads at a time.
pub trait FileSystem: Sync {
    /// Large writes are worth answering with [`Reply::send_early`].
    fn answers_early(&self) -> bool {
        false
    }

    /// Answers one request; the payload of an [`Answer::Done`] goes into `reply`, which is empty.
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
