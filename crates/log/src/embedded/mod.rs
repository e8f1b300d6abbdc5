//! The log when this process serves its directory: calls go straight to the
//! [`Service`](crate::engine::service::Service).
//!
//! # When the shared memory is removed
//!
//! Other programs may remove the memory while it is used (`directory::memory`). A process then goes
//! on in new memory:
//!
//! 1. It notices by its flush worker, several times a second, or when it misses a file.
//! 2. It *leaves*: its operations under way end, it releases its leases, brings what it has to the
//!    log files, and gives up its slot (`engine::leave`).
//! 3. It *joins* again. New memory is made when no process has a slot, so no process uses the old
//!    memory then. A process that joins waits some seconds for others to leave.
//! 4. The stream headers are those of the old memory, which is mapped still. If they were zeros,
//!    their users would take it for a restart of the machine.
//! 5. A caller that holds a stream's lease holds it again, if no other process has appended
//!    meanwhile. Otherwise the stream is busy for that caller until it takes the lease again.
//!
//! An operation that misses a file is made once more in the new memory. If a process does not
//! leave, because it is stopped, operations of the others fail with an error that names it. Each of
//! them tries again.
//!
//! ```text
//!   log stream     what `Log` and `Stream` call
//!   membership     what this process has of the service at present, and how it is replaced
//! ```

pub(crate) mod log;
mod membership;
mod stream;
