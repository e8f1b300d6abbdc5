//! The FUSE adapter: the only place that knows FUSE and errno.
//!
//! From the kernel upwards: `attach` mounts, `connection` shakes hands, `queues` (io_uring) or
//! `workers` (`/dev/fuse`) take requests and answer them through [`Serve`], `adapter` makes each an operation of the volume; [`Session`] is
//! all of it. The adapter is thin: what a file system does is decided in `ext4`.

pub mod abi;
mod adapter;
mod attach;
mod caller;
mod capabilities;
mod closing;
mod connection;
mod convert;
mod daemon_gone;
mod errno;
mod error;
mod file_system;
mod guard;
mod handoff;
mod handshake;
mod metrics;
mod metrics_server;
mod namespace;
mod notifier;
mod one_file;
mod options;
mod polled;
mod queues;
mod read_ahead;
mod receive;
mod reply;
mod request;
mod session;
mod session_options;
mod stat;
mod workers;

pub use attach::{MountHandle, Unmounter, is_daemon_gone, remount, unmount_here};
pub use closing::CLOSING_NAME;
pub use connection::Connection;
pub use daemon_gone::{DAEMON_GONE, check_directory};
pub use errno::errno;
pub use error::MountError;
pub use file_system::Serve;
pub use guard::Guard;
pub use metrics::MetricsText;
pub use metrics_server::{listen as listen_for_metrics, serve_during as serve_metrics_during};
pub use notifier::{ByteRange, Dropping, Notifier};
pub use one_file::{MountedFile, OneFile};
pub use options::{IoUring, MountOptions, Source};
pub use polled::{Polled, Taken};
pub use receive::MAX_TRANSFER_BYTES;
pub use reply::{Answer, Reply};
pub use request::{Body, Request};
pub use session::{Closer, Session, SessionError};
pub use session_options::SessionOptions;
pub use stat::{
    FILE_XATTR, FILES_XATTR, JournalCounters, MODE_XATTR, PID_XATTR, STAT_XATTR, StatSource,
};
