//! The threads that read requests from `/dev/fuse` and answer them.
//!
//! A request is answered in the thread that read it, unless the file system hands it over, so that
//! a client and its server can share a CPU and no request is handed from thread to thread. All
//! threads read the same descriptor; the kernel gives each request to one of them.
//!
//! The kernel wakes them in turn, so every idle thread makes a single client slower (a write and
//! fsync: 11.5 µs with one thread, 14 with two, 16 with eight). But requests that wait, such as
//! `fsync`, need a thread each. Therefore the number follows the load. A thread that takes a
//! request when no other waits for the next starts another. A thread that has long seen enough
//! others waiting ends.
//!
//! A request that cannot block because as many threads as may do waits in a queue. Each thread that
//! has served a request takes one from there first.
//!
//! Nothing here looks at the client in `/proc` (at its CPU, for example): a client in the middle of
//! exec holds locks of its entry there while it waits for its answer.
//!
//! On a panic while serving (a violated assertion) the process aborts. A file system can promise
//! something for a crash at any point. It can promise nothing for going on with a wrong state.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;

use device::AlignedBuf;
use device::sync::Mutex;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader};
use crate::file_system::{FileSystem, serve_guarded};
use crate::reply::{Answer, Begun, Reply, StandIns, out_header};
use crate::request::Request;
use crate::stopper::Stopper;
use crate::transport::blocked::Blocked;
use crate::transport::receive::{
    MAX_TRANSFER_BYTES, PAGE_BYTES, Read, WRITE_HEAD_BYTES, read_request,
};

/// Threads that stay, however idle: one serves a request, the other takes the next one meanwhile.
const IDLE_THREAD_COUNT: usize = 2;
/// A thread ends when so many times in a row enough others waited for a request.
const SUPERFLUOUS_REQUEST_COUNT: u32 = 2000;

struct Pool<'a, S> {
    device: &'a Arc<OwnedFd>,
    server: &'a S,
    max_thread_count: usize,
    stopper: &'a Stopper,
    is_unmounted: AtomicBool,
    /// Threads that wait for a request.
    waiting_count: AtomicUsize,
    blocked: Blocked,
    parked: Parked,
    first_error: Mutex<Option<Errno>>,
}

/// Requests that are served again when fewer threads block.
struct Parked {
    requests: Mutex<VecDeque<Vec<u8>>>,
    count: AtomicUsize,
}

impl Parked {
    fn new(requests: Vec<Vec<u8>>) -> Parked {
        let count = AtomicUsize::new(requests.len());
        Parked { requests: Mutex::new(requests.into()), count }
    }

    fn push(&self, request: Vec<u8>) {
        self.requests.lock().push_back(request);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn pop(&self) -> Option<Vec<u8>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let request = self.requests.lock().pop_front()?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        Some(request)
    }
}

/// How a request was served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    Answered,
    Later,
    Unmounted,
}

/// Why no more requests are taken.
pub(crate) enum Stop {
    Unmounted,
    /// The [`Stopper`] was asked. These requests were taken, and are to be served again.
    Asked(Vec<Vec<u8>>),
}

/// Serves `requests`, and then what the kernel sends, until there is nothing to serve or `stopper`
/// is asked. Up to `max_thread_count` threads serve (at least one). Beside them, up to
/// `stand_in_count` stand in for threads that block.
pub(crate) fn serve_until_stopped(
    device: &Arc<OwnedFd>,
    server: &impl FileSystem,
    (max_thread_count, stand_in_count): (usize, usize),
    stopper: &Stopper,
    requests: Vec<Vec<u8>>,
) -> Result<Stop, Errno> {
    let pool = Pool {
        device,
        server,
        max_thread_count: max_thread_count.max(1),
        stopper,
        is_unmounted: AtomicBool::new(false),
        waiting_count: AtomicUsize::new(0),
        blocked: Blocked::new(stand_in_count),
        parked: Parked::new(requests),
        first_error: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let count = IDLE_THREAD_COUNT.min(pool.max_thread_count);
        let started_count = (0..count).filter(|_| pool.start_worker(scope)).count();
        // This thread would only wait for the others; it serves instead when none could start.
        if started_count == 0 && pool.stopper.expect_thread(1) {
            pool.work(scope);
        }
        pool.stopper.wait_for_end();
    });
    match pool.first_error.into_inner() {
        Some(errno) => Err(errno),
        None if pool.is_unmounted.into_inner() => Ok(Stop::Unmounted),
        None => Ok(Stop::Asked(pool.parked.requests.into_inner().into())),
    }
}

impl<S: FileSystem> Pool<'_, S> {
    /// `false`: it did not start. With enough threads that do not block, none is started.
    fn start_worker<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> bool {
        if !self.stopper.expect_thread(self.max_thread_count + self.blocked.count()) {
            return true;
        }
        let builder = std::thread::Builder::new().name("fuse".into());
        let started = builder.spawn_scoped(scope, || self.work(scope));
        if let Err(error) = &started {
            self.stopper.forget_thread();
            tracing::warn!(%error, "a worker thread did not start");
        }
        started.is_ok()
    }

    /// Serves a request, and then the parked ones. `false`: unmounted.
    fn serve_and_unpark(&self, bytes: &[u8], serve: &mut dyn FnMut(&[u8]) -> Served) -> bool {
        let served = serve(bytes);
        if served == Served::Later {
            self.parked.push(bytes.to_vec());
        }
        served != Served::Unmounted && self.unpark(serve)
    }

    /// Serves the parked requests, as long as a thread may block. A thread that stops blocking
    /// comes here after that, and finds what was parked before. What was parked later found that a
    /// thread may block. `false`: unmounted.
    fn unpark(&self, serve: &mut dyn FnMut(&[u8]) -> Served) -> bool {
        while self.blocked.has_room() && !self.may_end() {
            let Some(request) = self.parked.pop() else { return true };
            match serve(&request) {
                Served::Answered => {}
                Served::Later => self.parked.push(request),
                Served::Unmounted => return false,
            }
        }
        true
    }

    /// The threads are to end, and none waits for the answer to a request.
    fn may_end(&self) -> bool {
        self.stopper.is_asked() && self.blocked.count() == 0 && self.stopper.is_quiet()
    }

    /// One worker: serves what is parked, then reads and answers until it is not needed, is to end,
    /// or the file system is unmounted.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let taking = self.stopper.begin();
        let start = PAGE_BYTES - WRITE_HEAD_BYTES;
        let mut input = AlignedBuf::zeroed(PAGE_BYTES + MAX_TRANSFER_BYTES);
        let mut output = AlignedBuf::zeroed(PAGE_BYTES + MAX_TRANSFER_BYTES);
        let mut superfluous_count = 0;
        let stand_ins = PoolStandIns { pool: self, scope };
        let mut is_mounted = self.unpark(&mut |bytes| {
            serve_one(self.device, self.server, &stand_ins, bytes, &mut output)
        });
        while is_mounted {
            if self.may_end() {
                return;
            }
            let others_waiting = self.waiting_count.fetch_add(1, Ordering::SeqCst);
            superfluous_count =
                if others_waiting < IDLE_THREAD_COUNT { 0 } else { superfluous_count + 1 };
            if superfluous_count > SUPERFLUOUS_REQUEST_COUNT {
                self.waiting_count.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            let read = taking.wait(|| read_request(self.device, &mut input[start..]));
            let last_waiting = self.waiting_count.fetch_sub(1, Ordering::SeqCst) == 1;
            match read {
                Ok(Read::Request(len_bytes)) => {
                    if last_waiting {
                        self.start_worker(scope);
                    }
                    let bytes = &input[start..start + len_bytes];
                    let mut serve = |bytes: &[u8]| {
                        serve_one(self.device, self.server, &stand_ins, bytes, &mut output)
                    };
                    is_mounted = self.serve_and_unpark(bytes, &mut serve);
                }
                Ok(Read::Nothing) => {}
                Ok(Read::Unmounted) => is_mounted = false,
                Err(errno) => {
                    self.first_error.lock().get_or_insert(errno);
                    return;
                }
            }
        }
        self.is_unmounted.store(true, Ordering::Relaxed);
    }
}

/// Blocked threads do not count against the limit of the pool.
struct PoolStandIns<'scope, 'env, S> {
    pool: &'scope Pool<'scope, S>,
    scope: &'scope Scope<'scope, 'env>,
}

impl<S: FileSystem> StandIns for PoolStandIns<'_, '_, S> {
    fn begin(&self) -> Begun {
        let begun = self.pool.blocked.begin();
        if begun != Begun::Yes {
            return begun;
        }
        // A thread that takes the last free place, and blocks, comes here as well.
        if self.pool.waiting_count.load(Ordering::SeqCst) > 0 || self.pool.start_worker(self.scope)
        {
            return Begun::Yes;
        }
        self.end();
        Begun::NoThread
    }

    fn end(&self) {
        self.pool.blocked.end();
    }
}

/// Answers what was read, using `output` for header and payload.
fn serve_one(
    device: &Arc<OwnedFd>,
    server: &impl FileSystem,
    stand_ins: &dyn StandIns,
    bytes: &[u8],
    output: &mut [u8],
) -> Served {
    // The header directly before the payload: one write sends both.
    let (head, room) = output.split_at_mut(PAGE_BYTES);
    let early = |header: &OutHeader, payload: &[u8]| {
        let message = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
        // Interrupted, or unmounted: the kernel waits for no answer any more. After another error
        // the answer is tried again at the end of the request.
        let sent = rustix::io::writev(&**device, &message);
        matches!(sent, Ok(_) | Err(Errno::NOENT | Errno::NODEV))
    };
    let reply = Reply::new(room).with_early(&early).with_stand_ins(stand_ins);
    let mut reply = reply.with_device(device);
    let (unique, answer) = match Request::parse(bytes) {
        Ok(request) => (request.header.unique, serve_guarded(server, &request, &mut reply)),
        Err(errno) => garbled(bytes, errno),
    };
    if answer == Answer::Later {
        return Served::Later;
    }
    let Some(header) = reply.header(unique, answer) else { return Served::Answered };
    let start = PAGE_BYTES - size_of::<OutHeader>();
    head[start..].copy_from_slice(header.as_bytes());
    match rustix::io::write(&**device, &output[start..start + header.len as usize]) {
        // The request was interrupted: the kernel waits for no answer any more.
        Ok(_) | Err(Errno::NOENT) => Served::Answered,
        Err(Errno::NODEV) => Served::Unmounted,
        Err(errno) => {
            tracing::error!(%errno, unique, len_bytes = header.len, "an answer was refused");
            let refused = out_header(unique, Answer::Failed(Errno::IO), 0).expect("it is sent");
            // When even this is refused, no error can be reported.
            let _ = rustix::io::write(&**device, refused.as_bytes());
            Served::Answered
        }
    }
}

fn garbled(bytes: &[u8], errno: Errno) -> (u64, Answer) {
    tracing::warn!(len_bytes = bytes.len(), "a garbled request");
    match InHeader::read_from_prefix(bytes) {
        Ok((header, _)) => (header.unique, Answer::Failed(errno)),
        Err(_) => (0, Answer::Silent),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    use crate::reply::Answerer;

    use super::*;

    /// Hands each request over.
    #[derive(Default)]
    struct Server(Mutex<Vec<Answerer>>);

    impl FileSystem for Server {
        fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
            self.0.lock().push(reply.hand_over(request.header.unique).unwrap());
            Answer::HandedOver
        }
    }

    /// The errors of the answers that the kernel has got so far.
    fn errors(mut kernel: &UnixStream) -> Vec<i32> {
        let mut bytes = Vec::new();
        let end = kernel.read_to_end(&mut bytes).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::WouldBlock);
        let headers = bytes.chunks(size_of::<OutHeader>());
        headers.map(|header| OutHeader::read_from_bytes(header).unwrap().error).collect()
    }

    #[test]
    fn a_request_that_was_handed_over_is_answered_once() {
        let (device, kernel) = UnixStream::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let (device, server) = (Arc::new(OwnedFd::from(device)), Server::default());
        let len = size_of::<InHeader>() as u32;
        let header = InHeader { len, opcode: 3, unique: 7, ..InHeader::default() };
        let mut output = AlignedBuf::zeroed(2 * PAGE_BYTES);
        for _ in 0..3 {
            let (stand_ins, bytes) = (Blocked::new(1), header.as_bytes());
            let served = serve_one(&device, &server, &stand_ins, bytes, &mut output);
            assert!(served == Served::Answered && errors(&kernel).is_empty());
        }
        let [one, other, forgotten] = server.0.into_inner().try_into().ok().unwrap();
        one.answer(Ok(()));
        assert_eq!(errors(&kernel), [0]);
        other.answer(Err(Errno::NOSPC));
        assert_eq!(errors(&kernel), [-Errno::NOSPC.raw_os_error()]);
        drop(forgotten);
        assert_eq!(errors(&kernel), [-Errno::IO.raw_os_error()]);
    }
}
