//! Every FUSE request, turned into an operation of the volume.
//!
//! Nothing is kept for an open file: OPEN and OPENDIR are answered ENOSYS, which makes the kernel
//! stop asking and keep its caches; CREATE likewise, so that creating a file is one MKNOD. (A mount
//! that offers atomic writes has to hear of opening and closing: see `atomic`, `open`.) An inode
//! number is its own node number, but for the root; the kernel's lookup counts are the volume's pins.
//!
//! Lock: `volume` is held shared by every request and exclusively only to close it.

mod atomic;
mod attributes;
mod data;
mod directory;
#[cfg(test)]
mod early_test;
mod forgets;
#[cfg(test)]
mod fuzz_test;
mod ioctl;
mod names;
mod open;
mod overlay;
mod settle;
mod spending;
mod xattr;

use std::sync::Arc;

use device::sync::{Mutex, RwLock};
use ext4::{InodeNo, Volume};
use fuse::abi::{BatchForgetIn, ForgetIn, ForgetOne, InHeader, Opcode, init};
use fuse::{Answer, Body, FileSystem, Notifier, Reply, Request};
use rustix::io::Errno;

pub(crate) use self::atomic::AtomicWrites;
use self::forgets::Forgets;
use self::settle::Settling;
use crate::capabilities::Capabilities;
use crate::closing::mark_closing;
use crate::convert;
use crate::errno::{errno, is_grave};
use crate::metrics;
use crate::stat::{AdapterCounters, Opening, Stat, StatSource};

/// The volume as a FUSE server.
pub(crate) struct Adapter {
    /// `None` once it is closed.
    volume: RwLock<Option<Volume>>,
    /// How closing went, once it was tried.
    close_result: Mutex<Option<ext4::Result<()>>>,
    counters: AdapterCounters,
    forgets: Forgets,
    capabilities: Capabilities,
    notifier: Option<Arc<Notifier>>,
    settling: Settling,
    /// `None`: not offered.
    atomic: Option<AtomicWrites>,
    stat_source: StatSource,
    /// The flags of `abi::init` that hold for this connection.
    agreed_flags: u64,
}

impl Adapter {
    pub(crate) fn new(
        volume: Volume,
        stat_source: StatSource,
        agreed_flags: u64,
        notifier: Option<Arc<Notifier>>,
        atomic: Option<AtomicWrites>,
    ) -> Adapter {
        let opening = Opening::so_far(&stat_source);
        Adapter {
            volume: RwLock::new(Some(volume)),
            close_result: Mutex::new(None),
            counters: AdapterCounters { opening, ..AdapterCounters::default() },
            forgets: Forgets::default(),
            capabilities: Capabilities::default(),
            notifier,
            settling: Settling::default(),
            atomic,
            stat_source,
            agreed_flags,
        }
    }

    /// No more threads than that wait for space that is on its way back.
    pub(crate) fn limit_waiters(&mut self, count: usize) {
        self.forgets.limit_waiters(count);
    }

    /// No more threads than that wait until a file is settled.
    pub(crate) fn limit_settling(&mut self, count: usize) {
        self.settling.limit = count;
    }

    /// Tells the kernel nothing any more, and closes the descriptor for that: atomic writes, which need
    /// it, are not offered any more.
    pub(crate) fn drop_notifier(&mut self) {
        self.atomic = None;
        self.notifier = None;
    }

    fn agreed(&self, flag: u64) -> bool {
        self.agreed_flags & flag != 0
    }

    /// What the mount knows of itself.
    fn stat<'a>(&'a self, volume: &Volume) -> Stat<'a> {
        let transport = if self.agreed(init::OVER_IO_URING) { "io_uring" } else { "dev_fuse" };
        let writeback_cache = self.agreed(init::WRITEBACK_CACHE);
        Stat::new(&self.stat_source, &self.counters, volume, transport, writeback_cache)
    }

    /// The same for Prometheus; `None` once the volume is closed.
    pub(crate) fn metrics(&self) -> Option<String> {
        let volume = self.volume.read();
        Some(metrics::render(&self.stat(volume.as_ref()?)))
    }

    /// Closes the volume when all requests in progress are done. The second call does nothing but
    /// tell how the first went.
    pub(crate) fn close(&self) -> ext4::Result<()> {
        let mut result = self.close_result.lock();
        if let Some(volume) = self.volume.write().take() {
            *result = Some(volume.close());
        }
        result.clone().expect("the first call closes")
    }

    fn destroy(&self) -> Answer {
        mark_closing();
        match self.close() {
            Ok(()) => Answer::Done,
            Err(error) => {
                tracing::error!(%error, "closing the volume");
                Answer::Failed(errno(&error))
            }
        }
    }

    fn forget(&self, request: &Request<'_>) -> Result<(), Errno> {
        let volume = self.volume.read();
        let Some(volume) = volume.as_ref() else { return Ok(()) };
        let forget_one = |node: u64, lookup_count: u64| {
            let Ok(ino) = convert::inode_of(node) else { return };
            // The kernel never counts lookups of the root, it is always there.
            if ino != InodeNo::ROOT {
                self.capabilities.changed(ino);
                if let Some(atomic) = &self.atomic {
                    atomic.forget(ino);
                }
                volume.forget(ino, lookup_count);
            }
        };
        let mut body = request.body;
        if request.opcode == Some(Opcode::Forget) {
            let forget: ForgetIn = body.take()?;
            forget_one(request.header.nodeid, forget.nlookup);
        } else {
            let batch: BatchForgetIn = body.take()?;
            for _ in 0..batch.count {
                let one: ForgetOne = body.take()?;
                forget_one(one.nodeid, one.nlookup);
            }
        }
        Ok(())
    }

    fn report(&self, opcode: Opcode, header: &InHeader, failure: Failure) -> Errno {
        match failure {
            Failure::Errno(errno) => errno,
            Failure::Volume(error) => {
                if is_grave(&error) {
                    tracing::error!(?opcode, node = header.nodeid, %error, "a failed operation");
                    *self.counters.last_error.lock() = Some(error.to_string());
                }
                errno(&error)
            }
        }
    }
}

impl FileSystem for Adapter {
    fn answers_early(&self) -> bool {
        let volume = self.volume.read();
        volume.as_ref().is_some_and(|volume| !volume.data_mode().is_journaled())
    }

    fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        AdapterCounters::add(&self.counters.requests, 1);
        let Some(opcode) = request.opcode else { return Answer::Failed(Errno::NOSYS) };
        match opcode {
            Opcode::Destroy => return self.destroy(),
            Opcode::Interrupt => return Answer::Silent,
            Opcode::Forget | Opcode::BatchForget => {
                if self.forgets.note(|| self.forget(request)).is_err() {
                    tracing::warn!(len_bytes = request.header.len, "a garbled FORGET");
                }
                return Answer::Silent;
            }
            _ => {}
        }
        let volume = self.volume.read();
        let Some(volume) = volume.as_ref() else { return Answer::Failed(Errno::IO) };
        let header = request.header;
        let is_no_space =
            |failure: &Failure| matches!(failure, Failure::Volume(ext4::Error::NoSpace));
        let served = self.forgets.with_space(volume, is_no_space, || {
            spending::spend(volume, request, || {
                reply.clear();
                let body = request.body;
                Call { adapter: self, volume, header, body, reply: &mut *reply }.dispatch(opcode)
            })
        });
        match served {
            Ok(()) => Answer::Done,
            Err(failure) => Answer::Failed(self.report(opcode, &header, failure)),
        }
    }
}

/// Why a request fails.
enum Failure {
    /// By the rules of the protocol.
    Errno(Errno),
    /// In the volume.
    Volume(ext4::Error),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

impl From<ext4::Error> for Failure {
    fn from(error: ext4::Error) -> Self {
        Failure::Volume(error)
    }
}

/// Outcome of a request; the payload is in the reply.
type Outcome = Result<(), Failure>;

/// One request on its way through the volume.
struct Call<'a, 'b> {
    adapter: &'a Adapter,
    volume: &'a Volume,
    header: InHeader,
    body: Body<'a>,
    reply: &'a mut Reply<'b>,
}

impl Call<'_, '_> {
    /// The inode that the request is about.
    fn ino(&self) -> Result<InodeNo, Errno> {
        convert::inode_of(self.header.nodeid)
    }

    fn dispatch(&mut self, opcode: Opcode) -> Outcome {
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::Readlink => self.readlink(),
            Opcode::Symlink => self.symlink(),
            Opcode::Mknod => self.mknod(),
            Opcode::Mkdir => self.mkdir(),
            Opcode::Unlink => self.unlink(),
            Opcode::Rmdir => self.rmdir(),
            Opcode::Rename => self.rename(),
            Opcode::Rename2 => self.rename2(),
            Opcode::Link => self.link(),
            Opcode::Readdir => self.readdir(),
            Opcode::Readdirplus => self.readdirplus(),
            Opcode::Getattr => self.getattr(),
            Opcode::Setattr => self.setattr(),
            Opcode::Statx => self.statx(),
            Opcode::Statfs => self.statfs(),
            Opcode::Read => self.read(),
            Opcode::Write => self.write(),
            Opcode::Fsync | Opcode::Fsyncdir => self.fsync(),
            Opcode::Syncfs => self.syncfs(),
            Opcode::Fallocate => self.fallocate(),
            Opcode::Lseek => self.lseek(),
            Opcode::Setxattr => self.setxattr(),
            Opcode::Getxattr => self.getxattr(),
            Opcode::Listxattr => self.listxattr(),
            Opcode::Removexattr => self.removexattr(),
            Opcode::Ioctl => self.ioctl(),
            Opcode::Open => self.open(),
            Opcode::Create => self.create(),
            Opcode::Tmpfile => self.tmpfile(),
            Opcode::Flush => self.flush(),
            Opcode::Release => self.release(),
            Opcode::Releasedir => Ok(()),
            // ENOSYS makes the kernel stop asking: no state per open file, no locks of our own,
            // its own permission checks, its own fallback for the rest.
            Opcode::Opendir
            | Opcode::Access
            | Opcode::Getlk
            | Opcode::Setlk
            | Opcode::Setlkw
            | Opcode::Bmap
            | Opcode::Poll
            | Opcode::CopyFileRange
            | Opcode::Setupmapping
            | Opcode::Removemapping
            | Opcode::NotifyReply => Err(Errno::NOSYS.into()),
            // A second handshake, and what `serve` has answered before.
            Opcode::Init
            | Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Interrupt
            | Opcode::Destroy => Err(Errno::IO.into()),
        }
    }
}
