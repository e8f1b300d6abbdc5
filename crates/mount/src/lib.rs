//! A volume as a FUSE file system: the only place that knows FUSE requests, `ext4` and errno.
//!
//! The crate `fuse` mounts, takes requests from the kernel and carries the answers. `adapter` makes
//! each request an operation of the volume. [`Session`] is all of it, from mount to a clean close.
//! The adapter is thin: what a file system does is decided in `ext4`.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   session          a mounted volume, from mount to a clean close
//!   adapter/         a request in, its answer out (serve):
//!                    operations/   one method of Call for each kind of request
//!                    call          a request with what its operation needs
//!                    state         Adapter: what all requests share
//!                    atomic/  forgets  spending  privileges  failure
//!                    flushes, lost_writes   fetching what the kernel still holds
//!   tables           all numbers of a volume and of a file
//!   stat declared    what a mount tells about itself; which files it may tear
//!   one_file         a mount with one file
//!   memory           how a limit of memory is divided
//!   session_options  what a mounted volume can be asked for
//!   access_lists     files that a mount without extended attributes refuses
//!   closing convert errno metrics_server numbers page_writer successor
//! ```

mod access_lists;
mod adapter;
mod closing;
mod convert;
mod declared;
mod errno;
mod memory;
mod metrics_server;
mod numbers;
mod one_file;
mod page_writer;
mod session;
mod session_options;
mod stat;
mod successor;
mod tables;

pub use access_lists::has_access_list;
pub use closing::CLOSING_NAME;
pub use declared::{Limit, MayTear};
pub use errno::errno;
pub use fuse::{
    Guard, IoUring, MountError, MountHandle, MountOptions, MountPoint, Paused, Source, Unmounter,
    is_daemon_gone, online_cpu_count, remount, unmount_by_fusermount, unmount_here,
};
pub use memory::Memory;
pub use metrics_server::{listen as listen_for_metrics, serve_during as serve_metrics_during};
pub use numbers::{Metric, Number, Value, page as metrics_page};
pub use one_file::{MountedFile, OneFile};
pub use page_writer::PageWriter;
pub use session::{Closer, Ended, HandedOver, Session, SessionError};
pub use session_options::{InWords, Order, SessionOptions};
pub use stat::{
    ATOMIC_WRITE_BYTES_XATTR, FILE_XATTR, FILES_XATTR, JournalCounters, MAKE_WRITABLE_XATTR,
    MODE_XATTR, PID_XATTR, RESTART_XATTR, RESTARTED, STAT_XATTR, StatSource, WRITABLE,
};
pub use successor::Successor;
pub use tables::{FILE, VOLUME};
