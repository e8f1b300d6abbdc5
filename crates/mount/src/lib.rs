//! A volume as a FUSE file system: the only place that knows FUSE requests, `ext4` and errno.
//!
//! The crate `fuse` mounts, takes requests from the kernel and carries the answers. `adapter` makes
//! each request an operation of the volume. [`Session`] is all of it, from mount to a clean close.
//! The adapter is thin: what a file system does is decided in `ext4`.

mod access_lists;
mod adapter;
mod closing;
mod convert;
mod daemon_gone;
mod declared;
mod errno;
mod metrics;
mod metrics_server;
mod one_file;
mod session;
mod session_options;
mod stat;

pub use access_lists::has_access_list;
pub use closing::CLOSING_NAME;
pub use daemon_gone::{DAEMON_GONE, check_directory};
pub use declared::{Limit, MayTear};
pub use errno::errno;
pub use fuse::{
    Guard, IoUring, MountError, MountHandle, MountOptions, Source, Unmounter, is_daemon_gone,
    remount, unmount_by_fusermount, unmount_here,
};
pub use metrics::MetricsText;
pub use metrics_server::{listen as listen_for_metrics, serve_during as serve_metrics_during};
pub use one_file::{MountedFile, OneFile};
pub use session::{Closer, Session, SessionError};
pub use session_options::{Order, SessionOptions};
pub use stat::{
    ATOMIC_WRITE_BYTES_XATTR, FILE_XATTR, FILES_XATTR, JournalCounters, MODE_XATTR, PID_XATTR,
    STAT_XATTR, StatSource,
};
