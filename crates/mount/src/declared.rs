//! Mounts that could tear writes which files on the volume are declared to need whole.
//!
//! A database with such files has switched its own protection off. So the mount is refused rather
//! than warned about: a message in a log is read after the power cut. The option `may_tear` mounts
//! nevertheless.

use std::fmt;

use ext4::Volume;

use crate::session_options::{Order, SessionOptions};

/// A mount that could tear writes which files on the volume are declared to need whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MayTear {
    /// The largest size that was declared on the volume.
    pub declared_bytes: u64,
    /// The largest aligned writes that are atomic on this mount.
    pub atomic_bytes: u64,
    /// What limits them.
    pub limit: Limit,
}

/// What limits the atomic writes of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The kernel collects writes (`order=sync`).
    Order,
    /// The largest write that the kernel passes on as one request.
    Request,
    /// The regions of the journal.
    Journal,
}

impl Limit {
    /// What limits atomic writes to fewer than `wanted_bytes`, if anything does.
    pub fn of(order: Order, wanted_bytes: u64) -> Limit {
        match order {
            Order::Sync => Limit::Order,
            Order::History if unsplit_write_bytes(order) < wanted_bytes => Limit::Request,
            Order::History => Limit::Journal,
        }
    }

    /// What to do, for a user.
    pub fn advice(self) -> &'static str {
        match self {
            Limit::Order => "mount with order=history",
            Limit::Request => {
                "at most 524288 bytes can be had, with 256 or more in \
                 /proc/sys/fs/fuse/max_pages_limit"
            }
            Limit::Journal => "mount with fewer regions= or a larger journal",
        }
    }
}

impl fmt::Display for MayTear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MayTear { declared_bytes, atomic_bytes, limit } = self;
        write!(
            f,
            "files on it are declared to need atomic writes of {declared_bytes} bytes, and this \
             mount gives {atomic_bytes}: {}, or add the option may_tear if no program relies on \
             them",
            limit.advice()
        )
    }
}

/// The most bytes of an aligned write that surely reaches the volume as one request.
pub(crate) fn unsplit_write_bytes(order: Order) -> u64 {
    match order {
        Order::History => fuse::unsplit_write_bytes() as u64,
        // The kernel joins and cuts what it has collected.
        Order::Sync => 0,
    }
}

/// Tells the volume how writes reach it. `Some`: this tears writes that files on it are declared to
/// need whole. On a read-only mount there are no writes.
pub(crate) fn check(volume: &Volume, options: &SessionOptions) -> Option<MayTear> {
    volume.set_unsplit_write_bytes(unsplit_write_bytes(options.order));
    let (declared_bytes, atomic_bytes) = (volume.declared_bytes(), volume.untorn_bytes());
    if options.mount.read_only || volume.is_read_only() || declared_bytes <= atomic_bytes {
        return None;
    }
    let limit = Limit::of(options.order, declared_bytes);
    Some(MayTear { declared_bytes, atomic_bytes, limit })
}
