//! File systems in user space on Linux.

pub mod abi;
mod caller;
mod connection;
mod error;
mod file_system;
mod guard;
mod handshake;
mod mounting;
mod notifier;
mod options;
mod reply;
mod request;
mod transport;

pub use caller::{CAP_FOWNER, CAP_FSETID, CAP_LINUX_IMMUTABLE, Caller};
pub use connection::Connection;
pub use error::MountError;
pub use file_system::FileSystem;
pub use guard::Guard;
pub use mounting::attach::{
    MountHandle, Unmounter, check_directory, is_daemon_gone, remount, unmount_here,
};
pub use notifier::{ByteRange, Dropping, Notifier};
pub use options::{IoUring, MountOptions, Source};
pub use reply::{Answer, Reply, SendEarly};
pub use request::{Body, Request};
pub use transport::polled::{Polled, Taken};
pub use transport::receive::{MAX_TRANSFER_BYTES, PAGE_BYTES};
