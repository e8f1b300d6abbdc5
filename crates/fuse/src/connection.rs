//! A FUSE connection: from the mount through the handshake to the end of its service.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::init;
use crate::error::{ENABLE_URING, MountError};
use crate::file_system::FileSystem;
use crate::guard::{Guard, Guarded};
use crate::handshake::{shake_hands, wanted_flags};
use crate::mounting::attach::{MountHandle, MountPoint, attach};
use crate::mounting::namespace::hold_namespace;
use crate::notifier::Notifier;
use crate::options::{IoUring, MountOptions, Source};
use crate::reply::{Answer, send_answer};
use crate::stopper::Stopper;
use crate::transport::polled::Polled;
use crate::transport::queues::{Rings, make_rings};
use crate::transport::workers::{Stop, serve_until_stopped};

/// A mounted connection whose handshake is done. Dropped before it runs, it unmounts.
pub struct Connection {
    device: Arc<OwnedFd>,
    handle: MountHandle,
    max_thread_count: usize,
    /// The fewest threads of each queue, as asked for.
    least_count: usize,
    stand_in_count: usize,
    agreed_flags: u64,
    guarded: Guarded,
    stopper: Stopper,
    /// What is served before all others.
    requests: Vec<Vec<u8>>,
    /// Present when requests come through io_uring.
    rings: Option<Rings>,
    /// Dropped after the descriptors: while they are open the kernel waits for an answer before it
    /// ends the mount.
    taken_back: TakenBack,
}

/// How [`Connection::run`] has ended.
#[derive(Debug)]
pub enum Ended {
    /// The file system was unmounted.
    Unmounted,
    /// Its [`Stopper`] was asked. The file system is mounted.
    Stopped(Paused),
}

/// A connection that is not served. Programs that use the file system wait until it is resumed, and
/// get an error when the last copy of its descriptor is closed.
#[derive(Debug)]
pub struct Paused {
    /// `/dev/fuse`, open.
    pub device: OwnedFd,
    /// The directory of the mount.
    pub dir: PathBuf,
    /// Number of the file system (major, minor), if it is known.
    pub number: Option<(u32, u32)>,
    /// See [`Connection::agreed_flags`].
    pub agreed_flags: u64,
    /// Requests that were taken and are to be served, as they came.
    pub requests: Vec<Vec<u8>>,
}

/// Unmounts when it is dropped, unless [`Connection::run`] has taken over.
struct TakenBack(Option<MountHandle>);

impl Drop for TakenBack {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && let Err(error) = handle.unmount_lazily()
        {
            tracing::warn!(%error, "the mount could not be taken back");
        }
    }
}

impl Connection {
    /// Mounts on the directory `dir` and answers the kernel's INIT. From here on file operations of
    /// programs wait for [`Connection::run`].
    ///
    /// Root mounts by mount(2). Other users need `fusermount3`.
    pub fn mount(
        source: &Source,
        dir: &Path,
        options: &MountOptions,
    ) -> Result<Connection, MountError> {
        Connection::mount_on(source, &MountPoint::open(dir)?, options)
    }

    /// The same on a directory that is open already.
    pub fn mount_on(
        source: &Source,
        place: &MountPoint,
        options: &MountOptions,
    ) -> Result<Connection, MountError> {
        if options.io_uring == IoUring::On {
            enable_io_uring()?;
        }
        if matches!(source, Source::BlockDevice(_)) {
            hold_namespace()?;
        }
        let (device, handle) = attach(source, place, options)?;
        let mut connection = Connection::through(device, handle, options);
        connection.taken_back.0 = Some(connection.handle());
        let (most, least) = (connection.max_thread_count, connection.least_count);
        connection.rings = match options.io_uring {
            IoUring::Off => None,
            IoUring::Auto | IoUring::On => make_rings(&connection.device, most, least),
        };
        let transport = if connection.rings.is_some() { init::OVER_IO_URING } else { 0 };
        let shaken = shake_hands(&connection.device, wanted_flags(options) | transport);
        connection.agreed_flags = match (shaken, source) {
            // To mount a device that is mounted already gives the old mount once more, and the
            // descriptor stays unused.
            (Err(MountError::System { errno: Errno::PERM, .. }), Source::BlockDevice(path)) => {
                return Err(MountError::DeviceBusy(path.clone()));
            }
            (result, _) => result?,
        };
        if connection.agreed_flags & init::OVER_IO_URING == 0 {
            if options.io_uring == IoUring::On {
                return Err(MountError::NoIoUring("the kernel does not offer it".into()));
            }
            connection.rings = None;
        }
        crate::mounting::page_cache::widen(connection.handle.dir(), options.writeback_cache);
        Ok(connection)
    }

    /// Goes on with a connection whose service was stopped, in this process or in another one.
    /// `options` are those of the mount. If it fails, the mount is dead as soon as no process has
    /// the descriptor.
    pub fn resume(paused: Paused, options: &MountOptions) -> Result<Connection, MountError> {
        let Paused { device, dir, number, agreed_flags, requests } = paused;
        hold_namespace()?;
        let handle = MountHandle::resumed(dir, number);
        let connection = Connection::through(device, handle, options);
        Ok(Connection { agreed_flags, requests, ..connection })
    }

    /// Before the handshake, through `/dev/fuse`.
    fn through(device: OwnedFd, handle: MountHandle, options: &MountOptions) -> Connection {
        let least_count = options.min_thread_count.max(1);
        Connection {
            device: Arc::new(device),
            handle,
            max_thread_count: options.thread_count.max(least_count),
            least_count,
            stand_in_count: options.stand_in_count.max(1),
            agreed_flags: 0,
            guarded: Guarded::default(),
            stopper: Stopper::default(),
            requests: Vec::new(),
            rings: None,
            taken_back: TakenBack(None),
        }
    }

    /// Answers the request `unique`, which was taken before the service was stopped.
    pub fn answer(&self, unique: u64, payload: &[u8]) {
        if let Err(errno) = send_answer(&*self.device, unique, Answer::Done, payload) {
            tracing::error!(%errno, unique, "an answer was refused");
        }
    }

    /// The mount. Any thread can unmount it.
    pub fn handle(&self) -> MountHandle {
        self.handle.clone()
    }

    /// The flags of [`crate::abi::init`] that both sides agreed on.
    pub fn agreed_flags(&self) -> u64 {
        self.agreed_flags
    }

    /// Starts a notifier for this connection. It has the connection open a second time: while it
    /// exists, the kernel does not end the connection.
    pub fn notifier(&self) -> Result<Notifier, MountError> {
        let device = self.device.try_clone();
        let (guarded, stopper) = (self.guarded.clone(), self.stopper.clone());
        let started = device.and_then(|device| Notifier::for_device(device, guarded, stopper));
        started.map_err(|error| MountError::System {
            what: "starting the notifier",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })
    }

    /// What ends [`Connection::run`] while the file system stays mounted. `None` through io_uring:
    /// the kernel ends the queues with the process that has made them.
    pub fn stopper(&self) -> Option<Stopper> {
        self.rings.is_none().then(|| self.stopper.clone())
    }

    /// `guard` watches over the connection from when pages are dropped for the first time. At most
    /// once for a connection. Nothing happens where the number of the file system is not known.
    pub fn guarded_by(&self, guard: Arc<dyn Guard>) {
        if let Some(device) = self.handle.device() {
            self.guarded.by(guard, device, self.device.clone());
        }
    }

    /// At most this many threads may block in `serve` until another request is answered. The rest
    /// are free to read and answer the other request.
    pub fn waiter_limit(&self) -> usize {
        match self.rings {
            // A thread of its own reads what does not come through them.
            Some(_) => usize::MAX,
            None => self.max_thread_count - 1,
        }
    }

    /// Requests that can be answered at a time, at least, whatever queue they come from.
    pub fn least_thread_count(&self) -> usize {
        self.rings.as_ref().map_or(self.max_thread_count, Rings::threads_per_queue)
    }

    /// Serves until the file system is unmounted, or its [`Stopper`] is asked, in this thread and
    /// others that it starts. They have ended on return.
    pub fn run(mut self, server: &impl FileSystem) -> Result<Ended, MountError> {
        self.taken_back.0 = None;
        let served = self.serve(server);
        if let Ok(Stop::Asked(requests)) = served {
            let device = self.device.try_clone().map_err(|_| no_descriptor())?;
            return Ok(Ended::Stopped(Paused {
                device,
                dir: self.handle.dir().to_owned(),
                number: self.handle.device(),
                agreed_flags: self.agreed_flags,
                requests,
            }));
        }
        self.handle.end();
        served.map(|_| Ended::Unmounted)
    }

    fn serve(&mut self, server: &impl FileSystem) -> Result<Stop, MountError> {
        let Some(rings) = self.rings.take() else {
            let limits = (self.max_thread_count, self.stand_in_count);
            loop {
                let requests = std::mem::take(&mut self.requests);
                match self.serve_from_device(server, limits, requests)? {
                    // Its wait may need an answer.
                    Stop::Asked(requests) if !self.stopper.is_quiet() => self.requests = requests,
                    stop => return Ok(stop),
                }
            }
        };
        // A file system that asks for more threads has requests that wait in other ways.
        let threads = rings.threads_per_queue();
        let block_limit = if self.least_count > 1 { 1 } else { threads.saturating_sub(1) };
        std::thread::scope(|scope| {
            crate::transport::queues::start(rings, scope, server, block_limit);
            self.serve_from_device(server, (1, self.stand_in_count), Vec::new())
        })
    }

    fn serve_from_device(
        &self,
        server: &impl FileSystem,
        limits: (usize, usize),
        requests: Vec<Vec<u8>>,
    ) -> Result<Stop, MountError> {
        serve_until_stopped(&self.device, server, limits, &self.stopper, requests)
            .map_err(|errno| MountError::System { what: "reading /dev/fuse", errno })
    }

    /// The same connection for one thread that takes requests itself, instead of
    /// [`Connection::run`]. Panics for a connection through io_uring: mount with
    /// [`crate::IoUring::Off`].
    pub fn into_polled(mut self) -> Result<Polled, MountError> {
        assert!(self.rings.is_none(), "requests of a ring come to its threads");
        let device = self.device.try_clone().map_err(|_| no_descriptor())?;
        let polled = Polled::new(device, self.handle.clone())?;
        self.taken_back.0 = None;
        Ok(polled)
    }
}

fn no_descriptor() -> MountError {
    MountError::System { what: "dup of /dev/fuse", errno: Errno::MFILE }
}

fn enable_io_uring() -> Result<(), MountError> {
    match std::fs::read_to_string(ENABLE_URING) {
        Ok(value) if value.trim() == "Y" => Ok(()),
        _ => std::fs::write(ENABLE_URING, "Y")
            .map_err(|error| MountError::NoIoUring(format!("{ENABLE_URING}: {error}"))),
    }
}
