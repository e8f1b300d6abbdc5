//! A mounted volume, from mount to a clean close.

use std::net::TcpListener;
use std::sync::{Arc, Weak};

use device::sync::Mutex;
use ext4::{JournalChoice, Pin, Volume};
use fuse::{Connection, Guard, MountError, MountHandle, MountPoint, Paused, Source};

use crate::adapter::{Adapter, AtomicWrites};
use crate::closing::mark_closing;
use crate::declared::{self, MayTear};
use crate::metrics_server::serve_during;
use crate::page_writer::PageWriter;
use crate::session_options::{InWords, Order, SessionOptions};
use crate::stat::StatSource;
use crate::successor::Successor;

/// Why a session did not end well.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The connection to the kernel failed; the volume was closed nevertheless.
    #[error(transparent)]
    Connection(#[from] MountError),
    /// The volume could not be closed: it is recovered at its next mount.
    #[error("closing the volume: {0}; it will be recovered at the next mount")]
    Close(ext4::Error),
    /// The mount could tear writes that files on the volume are declared to need whole. Nothing was
    /// mounted, and the volume was closed.
    #[error("{0}")]
    MayTear(MayTear),
}

/// How [`Session::run`] has ended.
pub enum Ended {
    /// The volume was unmounted and closed: everything is home, and it is clean.
    Unmounted,
    /// The volume is mounted, and another program is to go on with it ([`Session::resume`]).
    Restarting(HandedOver),
}

/// A mounted volume that is not served.
pub struct HandedOver {
    /// The connection to the kernel.
    pub connection: Paused,
    /// For [`ext4::OpenOptions::pins`].
    pub pins: Vec<Pin>,
    /// Whether the volume could be written.
    pub is_writable: bool,
    /// Requests that wait for the restart, and the payloads of their answers.
    pub waiting: Vec<(u64, Vec<u8>)>,
}

/// A volume that is mounted and usable as soon as [`Session::run`] runs.
pub struct Session {
    /// Dropped before the connection: its notifier has the descriptor, too.
    adapter: Adapter,
    connection: Connection,
    metrics: Option<TcpListener>,
    closer: Closer,
}

/// Closes a volume that programs still use, from any thread.
#[derive(Clone, Default)]
pub struct Closer(Arc<Mutex<Weak<Adapter>>>);

impl Closer {
    /// Brings everything home and closes the volume. From then on requests fail. `None`: the volume
    /// is not served.
    pub fn close(&self) -> Option<Result<(), SessionError>> {
        let adapter = self.0.lock().upgrade()?;
        mark_closing();
        Some(adapter.close().map_err(SessionError::Close))
    }
}

impl Session {
    /// Mounts `volume` on `place`, as file system type `fuse.onejournal` or `fuseblk.onejournal`,
    /// and finishes the handshake with the kernel. On failure the volume is closed.
    pub fn mount(
        volume: Volume,
        source: &Source,
        place: &MountPoint,
        options: &SessionOptions,
        stat_source: StatSource,
    ) -> Result<Session, SessionError> {
        match declared::check(&volume, options) {
            Some(may_tear) if !options.may_tear => {
                give_back(volume);
                return Err(SessionError::MayTear(may_tear));
            }
            Some(may_tear) => tracing::warn!("mounted with may_tear: {may_tear}"),
            None => {}
        }
        let connection = Connection::mount_on(source, place, &options.of_connection());
        Session::over(connection, volume, options, stat_source)
    }

    /// Goes on with a mount that was handed over; `volume` was opened with its pins. Requests that
    /// wait for the restart are answered. On failure the volume is closed.
    pub fn resume(
        volume: Volume,
        handed_over: HandedOver,
        options: &SessionOptions,
        stat_source: StatSource,
    ) -> Result<Session, SessionError> {
        // It may tear what it could tear before.
        let _ = declared::check(&volume, options);
        let HandedOver { connection, waiting, .. } = handed_over;
        let connection = Connection::resume(connection, &options.of_connection());
        let session = Session::over(connection, volume, options, stat_source)?;
        waiting.iter().for_each(|(unique, payload)| session.connection.answer(*unique, payload));
        Ok(session)
    }

    fn over(
        connection: Result<Connection, MountError>,
        volume: Volume,
        options: &SessionOptions,
        stat_source: StatSource,
    ) -> Result<Session, SessionError> {
        let has_atomic = may_offer_atomic_writes(&volume, options);
        let mounted = connection.and_then(|connection| {
            let notifier = Arc::new(connection.notifier()?);
            Ok((connection, notifier))
        });
        match mounted {
            Ok((connection, notifier)) => {
                // In each queue, one thread may block for another reason, and one stays free to
                // answer the requests that the others wait for.
                let file_limit = connection.least_thread_count().saturating_sub(2);
                let atomic =
                    has_atomic.then(|| AtomicWrites::new(&volume, notifier.clone(), file_limit));
                let agreed_flags = connection.agreed_flags();
                let mut adapter =
                    Adapter::new(volume, stat_source, agreed_flags, Some(notifier), atomic);
                adapter.limit_waiters(connection.waiter_limit());
                adapter.offer_xattrs(!options.no_xattr);
                let closer = Closer::default();
                Ok(Session { adapter, connection, metrics: None, closer })
            }
            Err(error) => {
                give_back(volume);
                Err(error.into())
            }
        }
    }

    /// Serves metrics on `listener` while [`Session::run`] runs.
    pub fn serve_metrics(&mut self, listener: TcpListener) {
        self.metrics = Some(listener);
    }

    /// `guard` watches over the connection from when pages are dropped for the first time.
    pub fn guarded_by(&self, guard: Arc<dyn Guard>) {
        self.connection.guarded_by(guard);
    }

    /// `writer` has the kernel send its pages before a sync of the whole volume is answered.
    pub fn write_pages_by(&mut self, writer: Arc<dyn PageWriter>) {
        self.adapter.write_pages_by(writer);
    }

    /// A volume that was opened read-only may become writable, with this journal and these options
    /// of the mount ([`crate::MAKE_WRITABLE_XATTR`]).
    pub fn allow_writing(&mut self, journal: JournalChoice, options: &SessionOptions) {
        self.adapter.allow_writing(journal, options);
    }

    /// `successor` can go on with the mount ([`crate::RESTART_XATTR`]). Not through io_uring.
    pub fn succeeded_by(&self, successor: Arc<dyn Successor>) {
        if let Some(stopper) = self.connection.stopper() {
            self.adapter.restarting.allow(successor, stopper);
        }
    }

    /// How errors of the volume are told to people: as the last error, and as the answer to a
    /// refused remount. Once.
    pub fn speak(&self, in_words: InWords) {
        self.adapter.counters.in_words.get_or_init(|| in_words);
    }

    /// The mount. Any thread can unmount it, which ends [`Session::run`].
    pub fn handle(&self) -> MountHandle {
        self.connection.handle()
    }

    /// Any thread can close the volume with it while [`Session::run`] runs.
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }

    /// Unmounts before the volume is served, and closes it.
    pub fn take_back(self) -> Result<(), SessionError> {
        let Session { mut adapter, connection, .. } = self;
        adapter.drop_notifier();
        drop(connection);
        adapter.close().map_err(SessionError::Close)
    }

    /// Serves until the volume is unmounted, and closes it; or until it is to be restarted.
    ///
    /// On a `fuseblk` mount the volume is closed before umount(2) returns. On other mounts the
    /// kernel only ends the connection, and the volume is closed after umount(2) has returned.
    pub fn run(self) -> Result<Ended, SessionError> {
        let Session { adapter, connection, metrics, closer, .. } = self;
        let adapter = Arc::new(adapter);
        *closer.0.lock() = Arc::downgrade(&adapter);
        let serve = || connection.run(&*adapter);
        let served = match &metrics {
            None => serve(),
            Some(listener) => serve_during(listener, &|| adapter.metrics(), serve),
        };
        if let Ok(fuse::Ended::Stopped(connection)) = served {
            return hand_over(adapter, connection).map(Ended::Restarting);
        }
        mark_closing();
        adapter.close().map_err(SessionError::Close)?;
        Ok(served.map(|_| Ended::Unmounted)?)
    }
}

/// On failure the mount is dead when this process ends.
fn hand_over(adapter: Arc<Adapter>, connection: Paused) -> Result<HandedOver, SessionError> {
    let is_writable = adapter.is_writable();
    let pins = adapter.hand_over().map_err(SessionError::Close)?;
    let waiting = adapter.restarting.take_waiting();
    Ok(HandedOver { connection, pins, is_writable, waiting })
}

/// Closes a volume that is not mounted.
fn give_back(volume: Volume) {
    if let Err(error) = volume.close() {
        tracing::error!(%error, "closing the volume");
    }
}

/// With a writeback cache it is unknown which program a write came from.
fn may_offer_atomic_writes(volume: &Volume, options: &SessionOptions) -> bool {
    options.atomic_writes
        && !options.mount.read_only
        && options.order == Order::History
        && !volume.is_read_only()
        && volume.atomic_block_limit() > 0
}
