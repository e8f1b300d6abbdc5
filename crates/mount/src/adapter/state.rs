//! What all requests share: the volume, and what is known beside it.
//!
//! Lock: `volume` is held shared by every request and exclusively only to close it, and to make it
//! writable.

use std::sync::{Arc, Once};

use device::sync::{Mutex, RwLock};
use ext4::{JournalChoice, Pin, Volume};
use fuse::Notifier;
use fuse::abi::init;

use crate::adapter::atomic::writes::AtomicWrites;
use crate::adapter::flushes::Flushes;
use crate::adapter::forgets::Forgets;
use crate::adapter::kernel_times::KernelTimes;
use crate::adapter::lost_writes::LostWrites;
use crate::adapter::privileges::Privileges;
use crate::adapter::range_parts::RangeParts;
use crate::adapter::restarting::Restarting;
use crate::page_writer::PageWriter;
use crate::session_options::{Order, SessionOptions};
use crate::stat::{AdapterCounters, Opening, Seen, StatSource};
use crate::tables::volume_page;

/// The volume as a FUSE server.
pub(crate) struct Adapter {
    /// `None` once it is closed.
    pub(super) volume: RwLock<Option<Volume>>,
    pub(super) writing: Writing,
    /// How closing went, once it was tried.
    pub(super) close_result: Mutex<Option<ext4::Result<()>>>,
    pub(crate) counters: Arc<AdapterCounters>,
    pub(super) forgets: Forgets,
    pub(super) privileges: Privileges,
    pub(super) notifier: Option<Arc<Notifier>>,
    /// Requests that wait for writes that the kernel has collected.
    pub(super) flushes: Flushes,
    /// Writes that the kernel had collected, and that failed.
    pub(super) lost_writes: LostWrites,
    /// What the kernel told of the times of files, with [`Order::Sync`].
    pub(super) kernel_times: KernelTimes,
    /// Parts of changes of several ranges.
    pub(super) range_parts: RangeParts,
    /// `None`: not offered.
    pub(super) atomic: Option<AtomicWrites>,
    /// What has the kernel send its pages before SYNCFS is answered.
    pub(super) page_writer: Option<Arc<dyn PageWriter>>,
    pub(crate) restarting: Restarting,
    pub(super) stat_source: StatSource,
    /// The flags of `abi::init` that hold for this connection.
    pub(super) agreed_flags: u64,
    /// Whether files have extended attributes here.
    pub(super) offers_xattrs: bool,
    /// The first file that is refused because of its access list is told.
    pub(super) access_list_seen: Once,
    /// The first file with `chattr +S` that [`Order::Sync`] does not honour is told.
    pub(super) sync_flag_seen: Once,
}

/// Whether the volume may become writable.
#[derive(Default)]
pub(super) struct Writing {
    /// The journal and the options of the mount. `None`: nothing can be written.
    pub(super) allowed: Option<(JournalChoice, SessionOptions)>,
    /// Why the last attempt failed, for the request that has made it. Lock: a leaf.
    pub(super) refusal: Mutex<Option<String>>,
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
            writing: Writing::default(),
            close_result: Mutex::new(None),
            counters: Arc::new(AdapterCounters { opening, ..AdapterCounters::default() }),
            forgets: Forgets::default(),
            privileges: Privileges::default(),
            notifier,
            flushes: Flushes::default(),
            lost_writes: LostWrites::default(),
            kernel_times: KernelTimes::default(),
            range_parts: RangeParts::default(),
            atomic,
            page_writer: None,
            restarting: Restarting::default(),
            stat_source,
            agreed_flags,
            offers_xattrs: true,
            access_list_seen: Once::new(),
            sync_flag_seen: Once::new(),
        }
    }

    /// Whether files have extended attributes here; they have unless this says no.
    pub(crate) fn offer_xattrs(&mut self, offers_xattrs: bool) {
        self.offers_xattrs = offers_xattrs;
    }

    /// See [`crate::Session::allow_writing`].
    pub(crate) fn allow_writing(&mut self, journal: JournalChoice, options: &SessionOptions) {
        self.writing.allowed = Some((journal, options.clone()));
    }

    pub(crate) fn write_pages_by(&mut self, writer: Arc<dyn PageWriter>) {
        self.page_writer = Some(writer);
    }

    /// At most so many threads wait for the space of deleted files.
    pub(crate) fn limit_waiters(&mut self, count: usize) {
        self.forgets.limit_waiters(count);
    }

    /// Ends the notifier, which closes its descriptor. Atomic writes, which need it, are not
    /// offered any more.
    pub(crate) fn drop_notifier(&mut self) {
        self.atomic = None;
        self.notifier = None;
    }

    pub(super) fn agreed(&self, flag: u64) -> bool {
        self.agreed_flags & flag != 0
    }

    /// The order of writes, as agreed on with the kernel.
    pub(super) fn order(&self) -> Order {
        if self.agreed(init::WRITEBACK_CACHE) { Order::Sync } else { Order::History }
    }

    /// What the mount knows of itself.
    pub(super) fn seen<'a>(&'a self, volume: &'a Volume) -> Seen<'a> {
        let transport = if self.agreed(init::OVER_IO_URING) { "io_uring" } else { "dev_fuse" };
        let order = self.order();
        Seen::new(&self.stat_source, &self.counters, volume, transport, order)
    }

    /// Whether the volume can be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.volume.read().as_ref().is_some_and(|volume| !volume.is_read_only())
    }

    /// The page for Prometheus; `None` once the volume is closed.
    pub(crate) fn metrics(&self) -> Option<String> {
        let volume = self.volume.read();
        Some(volume_page(&self.seen(volume.as_ref()?)))
    }

    /// Closes the volume when all requests in progress are done. A second call only returns the
    /// result of the first.
    pub(crate) fn close(&self) -> ext4::Result<()> {
        self.end(Volume::close)
    }

    /// Like [`Adapter::close`], for who serves the volume next. No pins if it is closed already.
    pub(crate) fn hand_over(&self) -> ext4::Result<Vec<Pin>> {
        let mut pins = Vec::new();
        self.end(|volume| volume.hand_over().map(|handed_over| pins = handed_over))?;
        Ok(pins)
    }

    /// Ends the use of the volume with `end`, once.
    fn end(&self, end: impl FnOnce(Volume) -> ext4::Result<()>) -> ext4::Result<()> {
        let mut result = self.close_result.lock();
        // Flushes wait for writes, and a write would wait until this thread has closed the volume.
        self.flushes.end();
        if let Some(volume) = self.volume.write().take() {
            self.kernel_times.give_back_all(&volume);
            *result = Some(end(volume));
        }
        result.clone().expect("the first call ends it")
    }
}
