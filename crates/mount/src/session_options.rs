//! What a mounted volume can be asked for.

use fuse::{IoUring, MountOptions};

/// Threads of each queue, at least, with atomic writes: all but one may wait for pages to be
/// dropped.
const ATOMIC_THREAD_COUNT: usize = 4;
/// Type of the file system in the mount table, after `fuse.` or `fuseblk.`.
pub(crate) const SUBTYPE: &str = "onejournal";

/// What the program says of an error of its volume.
pub type InWords = fn(&ext4::Error) -> String;

/// Which writes a crash may lose, beside those after the last sync of their file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Each write reaches the volume before it returns: what a crash leaves is a prefix of history.
    #[default]
    History,
    /// The kernel collects writes. Syncs order them, as on ext4. A file that replaces another one
    /// by rename has its data, and so has a file without a name that is given one.
    Sync,
}

impl Order {
    /// As in `-o order=`.
    pub fn name(self) -> &'static str {
        match self {
            Order::History => "history",
            Order::Sync => "sync",
        }
    }

    /// The order with this name.
    pub fn from_name(name: &str) -> Option<Order> {
        [Order::History, Order::Sync].into_iter().find(|order| order.name() == name)
    }
}

/// Options of a [`crate::Session`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// The options of the mount. With `noatime` the volume must be open with
    /// [`ext4::OpenOptions::noatime`], too. `fsync`s of as many threads can share a commit. The
    /// session sets the type of the file system, the fewest threads, `posix_acl` and
    /// `writeback_cache`. With [`Order::Sync`] requests come through `/dev/fuse`.
    pub mount: MountOptions,
    /// The order of writes.
    pub order: Order,
    /// Offers the ioctls for atomic writes. Then every open and close of a file is a request more.
    /// Not together with [`Order::Sync`], nor where the volume has none.
    pub atomic_writes: bool,
    /// Offers no extended attributes: then the kernel asks for none, which it does twice for a new
    /// file otherwise. A file with an access list, which the kernel would not obey, cannot be
    /// looked up.
    pub no_xattr: bool,
    /// Mounts also if it could tear writes that files on the volume are declared to need whole
    /// ([`crate::MayTear`]).
    pub may_tear: bool,
}

impl SessionOptions {
    /// What the connection to the kernel is asked for.
    pub(crate) fn of_connection(&self) -> MountOptions {
        MountOptions {
            subtype: Some(SUBTYPE.into()),
            writeback_cache: self.order == Order::Sync,
            // Through io_uring only some renames at a time could wait for the data of their files.
            io_uring: match self.order {
                Order::History => self.mount.io_uring,
                Order::Sync => IoUring::Off,
            },
            posix_acl: !self.no_xattr,
            min_thread_count: if self.atomic_writes { ATOMIC_THREAD_COUNT } else { 1 },
            ..self.mount.clone()
        }
    }
}
