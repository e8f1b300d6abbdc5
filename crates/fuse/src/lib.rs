//! File systems in user space on Linux: the FUSE protocol through `/dev/fuse` and io_uring.
//!
//! The crate mounts, agrees with the kernel on the protocol, takes requests and carries answers. A
//! file system gets the requests as the kernel sends them: what the operations mean, node numbers,
//! handles and lookup counts are its own. The data of a WRITE are in the buffer in which they
//! arrived, and the payload of a READ is built in the buffer from which it is sent.
//!
//! ```text
//!   Connection     mounts, agrees on flags (abi::init), runs until the mount is gone
//!       |
//!   transport      threads that take requests:  /dev/fuse   or   io_uring, a queue for each CPU
//!       |
//!   FileSystem     one Request in, one Answer and its Reply out      (Polled: without threads)
//! ```
//!
//! # Example
//!
//! A file system with an empty root directory. `examples/memory` is a complete one, with files that
//! can be read and written: `cargo run --example memory -- DIR`.
//!
//! ```no_run
//! use onejournal_fuse::abi::{AttrOut, FuseAttr, Opcode, ROOT_NODE};
//! use onejournal_fuse::{
//!     Answer, Connection, Errno, FileSystem, MountError, MountOptions, Reply, Request, Source,
//! };
//!
//! struct Empty;
//!
//! impl FileSystem for Empty {
//!     fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
//!         let pushed = match request.opcode {
//!             Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => {
//!                 return Answer::Silent;
//!             }
//!             Some(Opcode::Getattr) => {
//!                 let attr = FuseAttr::made_up(ROOT_NODE, 0o040_755, 0);
//!                 reply.push(&AttrOut { attr_valid: 3600, attr, ..AttrOut::default() })
//!             }
//!             Some(Opcode::Readdir | Opcode::Readdirplus | Opcode::Destroy) => Ok(()),
//!             Some(Opcode::Lookup) => Err(Errno::NOENT),
//!             _ => Err(Errno::NOSYS),
//!         };
//!         pushed.map_or_else(Answer::Failed, |()| Answer::Done)
//!     }
//! }
//!
//! fn main() -> Result<(), MountError> {
//!     let source = Source::Plain { name: "empty".into() };
//!     let dir = std::path::Path::new("/mnt/empty");
//!     let connection = Connection::mount(&source, dir, &MountOptions::default())?;
//!     connection.run(&Empty).map(drop) // until it is unmounted
//! }
//! ```
//!
//! # Protocol
//!
//! Version 7.34 (Linux 5.14) to 7.42 ([`abi::OLDEST_MINOR`], [`abi::MINOR`]); a newer kernel speaks
//! 7.42 with us. A connection asks for these flags of INIT, and the kernel grants the flags that it
//! knows ([`Connection::agreed_flags`]). Some of them oblige the file system:
//!
//! | flag | what the file system does |
//! |---|---|
//! | `NO_OPEN_SUPPORT`, `NO_OPENDIR_SUPPORT` | may answer OPEN and OPENDIR with `ENOSYS`: the kernel stops asking, and handles are 0 |
//! | `EXPORT_SUPPORT` | answers LOOKUP of `.` and `..`, which file handles (NFS) need, or refuses it |
//! | `DO_READDIRPLUS`, `READDIRPLUS_AUTO` | answers READDIRPLUS, with attributes or with an [`abi::EntryOut`] of zeros |
//! | `DONT_MASK` | applies the umask of MKNOD, MKDIR and CREATE |
//! | `HANDLE_KILLPRIV_V2` | clears set-user-ID, set-group-ID and capabilities when it is told to |
//! | `SETXATTR_EXT` | reads an [`abi::SetxattrIn`] instead of an [`abi::SetxattrInShort`] |
//! | `PARALLEL_DIROPS` | serves LOOKUP and READDIR of one directory at the same time |
//! | `CACHE_SYMLINKS` | nothing: the kernel keeps targets of symbolic links |
//! | `HAS_IOCTL_DIR` | answers IOCTL of directories, or refuses it |
//! | `POSIX_ACL` (with `default_permissions`) | keeps access lists as extended attributes |
//! | `WRITEBACK_CACHE` (with `writeback_cache`) | accepts WRITE after close, in any order, and the kernel's times and sizes |
//! | `ASYNC_DIO` (with `async_direct_io`) | serves several direct reads and writes of a file at a time |
//! | `ASYNC_READ`, `BIG_WRITES`, `MAX_PAGES` | nothing: READ in parallel, transfers up to 1 MiB |
//!
//! `ASYNC_DIO` is for files without cached pages: the kernel drops cached pages before a direct
//! write, but after an asynchronous one it does not drop them again. A page that was read meanwhile
//! would stay.
//!
//! # io_uring
//!
//! With [`IoUring::Auto`] requests come through io_uring where the kernel offers it: Linux 6.14
//! with `CONFIG_FUSE_IO_URING`, and the parameter `/sys/module/fuse/parameters/enable_uring` set to
//! `Y` before the mount. [`IoUring::On`] sets the parameter (as root; it stays set, for all mounts
//! of the machine). Machines with more than 256 possible CPUs, or 64 that are online, get
//! `/dev/fuse`. Memory is bounded: 2 MiB for each thread of a queue, and 2 MiB for each large write
//! under way.
//!
//! # Threads
//!
//! [`FileSystem::serve`] is called from several threads at a time. The thread that takes a request
//! answers it, so a client and its server can share a CPU. The number of threads follows the load,
//! up to [`MountOptions::thread_count`]. A request that waits for another request (for a FORGET,
//! for pages that a [`Notifier`] drops) keeps a thread from answering.
//! [`Reply::block_in_place`] has another thread answer meanwhile. Without it,
//! [`Connection::waiter_limit`] says how many may wait.
//!
//! # Errors and panics
//!
//! A failed request is [`Answer::Failed`] with an errno. A mount that fails is a [`MountError`],
//! whose text says what to do. A garbled request is answered `EIO` and never panics. When `serve`
//! panics, the process aborts: going on with a state that violates an assertion could write it, and
//! the kernel answers every client with an error when the process is gone.
//!
//! # Units
//!
//! Sizes, offsets and lengths are bytes, but for `blocks` of attributes (512 bytes). Times are
//! seconds since 1970 and nanoseconds, validity of cached names and attributes is seconds.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   connection           mounts, shakes hands, runs until it is unmounted
//!   handshake unsplit    what is agreed with the kernel; the largest write in one request
//!   transport/           workers (/dev/fuse), queues and large_writes (io_uring), polled;
//!                        blocked (threads that wait for another request)
//!   mounting/            mount(2) and fusermount3, the page cache, the mount namespace
//!   file_system          FileSystem: one Request in, one Answer and its Reply out
//!   directory notifier   records of READDIR; dropping what the kernel has cached
//!   request reply caller
//!   abi                  the protocol
//!   guard options error stopper
//! ```

#![deny(missing_docs)]

pub mod abi;
mod caller;
mod connection;
mod directory;
mod error;
mod file_system;
mod guard;
mod handshake;
mod mounting;
mod notifier;
mod options;
mod reply;
mod request;
mod stopper;
mod transport;
mod unsplit;

pub use caller::{CAP_FOWNER, CAP_FSETID, CAP_LINUX_IMMUTABLE, CAP_SYS_ADMIN, Caller};
pub use connection::{Connection, Ended, Paused};
pub use directory::dirent_bytes;
pub use error::MountError;
pub use file_system::FileSystem;
pub use guard::Guard;
pub use mounting::attach::{
    MountHandle, MountPoint, Unmounter, is_daemon_gone, remount, unmount_by_fusermount,
    unmount_here,
};
pub use notifier::{ByteRange, Dropping, Notifier};
pub use options::{IoUring, MAX_STAND_IN_COUNT, MountOptions, Source};
pub use reply::{Answer, Answerer, Reply, SendEarly};
pub use request::{Body, Request};
pub use rustix::io::Errno;
pub use stopper::Stopper;
pub use transport::polled::{Polled, Taken};
pub use transport::queues::online_cpu_count;
pub use transport::receive::{MAX_TRANSFER_BYTES, PAGE_BYTES};
pub use unsplit::unsplit_write_bytes;
