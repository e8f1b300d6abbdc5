//! What this process has of the service at present. It is replaced when the shared memory was
//! removed.
//!
//! Locks, in this order: `now`, `bindings`, each binding. An operation on a stream holds the
//! stream's binding for reading, any other operation and a round of the flush worker hold `now`. So
//! a process that leaves, which holds all of them for writing, has no operation under way.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use device::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::directory::options::Options;
use crate::directory::service_directory::ServiceDirectory;
use crate::engine::lane::Lane;
use crate::engine::leave::is_missing;
use crate::engine::service::Service;
use crate::engine::wakeup::Wakeup;
use crate::error::{LogError, Result};
use crate::host::StreamMeta;
use crate::words::Abort;

/// This process as a user of a service.
pub(super) struct Membership {
    options: Options,
    wakeup: Arc<Wakeup>,
    now: RwLock<Joined>,
    /// The bindings of the streams that are open.
    bindings: Mutex<Vec<Weak<RwLock<Binding>>>>,
}

/// The service as it was joined.
pub(super) struct Joined {
    pub(super) service: Arc<Service>,
    pub(super) directory: Arc<ServiceDirectory>,
    /// Whether this process has left it.
    pub(super) has_left: bool,
}

impl Joined {
    fn new((directory, service): (Arc<ServiceDirectory>, Service), wakeup: &Arc<Wakeup>) -> Joined {
        let service = Arc::new(service.with_wakeup(wakeup.clone()));
        Joined { service, directory, has_left: false }
    }

    /// Whether other processes cannot find its shared memory any more.
    pub(super) fn is_memory_gone(&self) -> bool {
        self.service.host.is_memory_gone()
    }
}

/// Where an open stream is.
pub(super) struct Binding {
    pub(super) service: Arc<Service>,
    pub(super) lane: Arc<Lane>,
    /// Whether this process has left the service, so that the lane is of no use any more.
    pub(super) has_left: bool,
    /// Whether it had the stream's lease when it left.
    pub(super) had_lease: bool,
    /// Whether a caller that took the lease does not have it any more.
    pub(super) is_interrupted: AtomicBool,
}

impl Binding {
    fn new(service: Arc<Service>, lane: Arc<Lane>) -> Binding {
        let is_interrupted = AtomicBool::new(false);
        Binding { service, lane, has_left: false, had_lease: false, is_interrupted }
    }
}

impl Membership {
    /// Joins the service in the directory `path`; makes it with `options` if there is none.
    pub(super) fn new(path: &Path, options: &Options) -> Result<Membership> {
        let wakeup = Arc::<Wakeup>::default();
        let now = Joined::new(Service::join(path, options, None)?, &wakeup);
        let (options, now) = (options.clone(), RwLock::new(now));
        Ok(Membership { options, wakeup, now, bindings: Mutex::default() })
    }

    /// What wakes the flush worker.
    pub(super) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }

    /// The service. This process does not leave it while the guard lives.
    pub(super) fn now(&self) -> RwLockReadGuard<'_, Joined> {
        self.now.read()
    }

    /// The service, without waiting. `None` if this process is leaving it. A forked process may
    /// ask: the thread that was leaving does not exist in it.
    pub(super) fn now_if_free(&self) -> Option<RwLockReadGuard<'_, Joined>> {
        self.now.try_read()
    }

    /// Runs an operation of the service. If it misses a file of shared memory that was removed,
    /// runs it once more in new memory.
    pub(super) fn run<T>(&self, operation: impl Fn(&Joined) -> Result<T>) -> Result<T> {
        let attempt = || {
            let now = self.now();
            (!now.has_left).then(|| is_done(operation(&now), &now.service)).flatten()
        };
        if let Some(done) = attempt() {
            return done;
        }
        self.renew()?;
        attempt().unwrap_or_else(|| Err(gone_again()))
    }

    /// Binds a stream that is open in the service. The caller holds `now`.
    pub(super) fn bind(&self, service: &Arc<Service>, lane: Arc<Lane>) -> Arc<RwLock<Binding>> {
        let mut bindings = self.bindings.lock();
        bindings.retain(|known| known.strong_count() > 0);
        // A lease is one of the process, so all users of a lane have one binding.
        let is_its = |binding: &Arc<RwLock<Binding>>| Arc::ptr_eq(&binding.read().lane, &lane);
        if let Some(known) = bindings.iter().filter_map(Weak::upgrade).find(is_its) {
            return known;
        }
        let binding = Arc::new(RwLock::new(Binding::new(service.clone(), lane)));
        bindings.push(Arc::downgrade(&binding));
        binding
    }

    /// Runs an operation of the stream that is bound. If it misses a file of shared memory that was
    /// removed, runs it once more in new memory.
    #[inline]
    pub(super) fn run_bound<T>(
        &self,
        bound: &RwLock<Binding>,
        operation: impl Fn(&Binding) -> Result<T>,
    ) -> Result<T> {
        let attempt = || {
            let binding = bound.read();
            (!binding.has_left).then(|| is_done(operation(&binding), &binding.service)).flatten()
        };
        if let Some(done) = attempt() {
            return done;
        }
        self.renew()?;
        self.rebind(bound)?;
        attempt().unwrap_or_else(|| Err(gone_again()))
    }

    /// If the shared memory was removed, leaves it and joins again.
    pub(super) fn renew(&self) -> Result<()> {
        let mut now = self.now.write();
        if !now.has_left {
            if !now.is_memory_gone() {
                return Ok(());
            }
            self.leave(&mut now)?;
        }
        let old = now.service.clone();
        *now = Joined::new(now.directory.join_again(&self.options)?, &self.wakeup);
        tracing::warn!(
            "{}: its shared memory was removed, and made anew",
            now.directory.path().display()
        );
        for lane in old.open_lanes() {
            // Without the header, the next user of the stream takes it for one after a restart.
            if let Err(e) = take_over_header(&now.service, &lane) {
                tracing::warn!("stream {}: its header is lost with its memory: {e}", lane.name);
            }
        }
        Ok(())
    }

    fn leave(&self, now: &mut Joined) -> Result<()> {
        let bindings: Vec<_> = self.bindings.lock().iter().filter_map(Weak::upgrade).collect();
        let mut bound: Vec<_> = bindings.iter().map(|binding| binding.write()).collect();
        now.service.bring_home_or_sync()?;
        for binding in bound.iter_mut().filter(|binding| !binding.has_left) {
            let has_lease = binding.lane.writer.lock().is_some();
            (binding.had_lease, binding.has_left) = (has_lease, true);
        }
        now.service.release_all();
        now.has_left = true;
        now.directory.leave()
    }

    /// Binds the stream to the service that was joined again.
    fn rebind(&self, bound: &RwLock<Binding>) -> Result<()> {
        let now = self.now();
        let mut binding = bound.write();
        if !binding.has_left {
            return Ok(());
        }
        let old = binding.lane.clone();
        let Some(meta) = same_stream(&now.service, &old)? else {
            old.words.abort(Abort::Removed);
            return old.check();
        };
        let lane = now.service.lane(&old.name, &meta)?;
        let new = Binding::new(now.service.clone(), lane);
        if binding.had_lease || *binding.is_interrupted.get_mut() {
            let is_continued = lease_again(&new, &old);
            new.is_interrupted.store(!is_continued, Ordering::Relaxed);
        }
        *binding = new;
        Ok(())
    }

    /// The service, when no stream is open.
    pub(super) fn into_joined(self) -> Joined {
        self.now.into_inner()
    }
}

/// The result of an operation. `None`: it missed a file of shared memory that was removed.
fn is_done<T>(done: Result<T>, service: &Service) -> Option<Result<T>> {
    match done {
        Err(e) if is_missing(&e) && service.host.is_memory_gone() => None,
        done => Some(done),
    }
}

/// The error of an operation that finds the new memory removed, too.
fn gone_again() -> LogError {
    LogError::system("the shared memory was removed again", ErrorKind::NotFound)
}

/// The stream of the lane, if the service has it still.
fn same_stream(service: &Service, lane: &Lane) -> Result<Option<StreamMeta>> {
    let found = service.host.stream(&lane.name)?;
    Ok(found.filter(|meta| meta.identity() == lane.identity()))
}

fn take_over_header(service: &Service, old: &Lane) -> Result<()> {
    match same_stream(service, old)? {
        Some(meta) => service.take_over_header(&service.lane(&old.name, &meta)?, old),
        None => Ok(()),
    }
}

/// Takes the lease of a stream again whose lease this process had in the memory of `old`. `false`:
/// another process has it, or has appended meanwhile.
fn lease_again(binding: &Binding, old: &Lane) -> bool {
    let Binding { service, lane, .. } = binding;
    if service.with_writer(lane, |_, _| Ok(())).is_err() {
        return false;
    }
    let is_same = lane.words.appended() == old.words.appended();
    if !is_same {
        service.release(lane);
    }
    is_same
}
