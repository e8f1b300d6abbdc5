//! FUSE over io_uring: a queue for each CPU, and threads that answer it.
//!
//! The kernel puts a request into the queue of the CPU on which the client runs. A thread of that
//! queue takes it, answers it, and waits for the next in one system call (through `/dev/fuse` there
//! are two). An entry is one request at a time. The kernel takes the entry that became free last,
//! so the threads of a queue that are not needed cost nothing.
//!
//! The threads are not bound to the CPU of their queue. The scheduler wakes them beside their
//! client as often as binding would, and lets them follow the disk's interrupt: a write and
//! fsync took 132 µs with bound threads, 106 with free ones, 124 through `/dev/fuse`; a SETATTR
//! 9.5, 9.5 and 15.8.
//!
//! The kernel wants a queue for each CPU that could ever be plugged in. A queue without a CPU costs
//! a waiting thread, and buffers that are never touched (150 KiB, of which 40 KiB are the kernel's;
//! measured with 252 queues). Memory for requests grows with the CPUs that are online, and is
//! bounded: 2 MiB for each of their threads, and 2 MiB more while it hands a large write over.
//!
//! FORGET, INTERRUPT and requests from before the queues are ready arrive through `/dev/fuse`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::Scope;

use device::{COMMAND_BYTES, CommandRing};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, Opcode, OutHeader, UringCmdReq, UringEntInOut, uring};
use crate::file_system::{FileSystem, serve_guarded};
use crate::reply::{Answer, Reply, SHORT_REPLY_BYTES, out_header};
use crate::request::{Body, Request};
use crate::transport::blocked::Blocked;
use crate::transport::large_writes::{self, Handoff};
use crate::transport::receive::MAX_TRANSFER_BYTES;

/// More queues than this and we stay with `/dev/fuse`: each has a thread of its own.
const MAX_QUEUE_COUNT: usize = 256;
/// More CPUs online than this and we stay with `/dev/fuse`: each has buffers of its own.
const MAX_ONLINE_COUNT: usize = 64;
/// Threads of the queue of a CPU that is online, at least: while one waits for the disk another
/// answers.
const MIN_THREADS_PER_QUEUE: usize = 2;

/// The rings of all queues, each with the number of its queue.
pub(crate) struct Rings(Vec<(u16, CommandRing)>);

impl Rings {
    /// The fewest threads that a queue has.
    pub(crate) fn threads_per_queue(&self) -> usize {
        let mut counts = [0; MAX_QUEUE_COUNT];
        self.0.iter().for_each(|(qid, _)| counts[usize::from(*qid)] += 1);
        counts.into_iter().filter(|count| *count > 0).min().unwrap_or(0)
    }
}

/// The number of CPUs that are online, each of which has a queue with some threads.
pub fn online_cpu_count() -> usize {
    list("online").and_then(|list| cpus(&list)).map_or(1, |cpus| cpus.len())
}

fn list(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok()
}

/// Makes the rings, `thread_count` of them for the CPUs that are online if that gives each queue
/// `least_count`; `None` where they cannot be had.
pub(crate) fn make_rings(
    device: &OwnedFd,
    thread_count: usize,
    least_count: usize,
) -> Option<Rings> {
    let counts = plan(&list("possible")?, &list("online")?, thread_count, least_count)?;
    let mut rings = Vec::new();
    // In turn, so that each queue has its first before another has many.
    for index in 0..counts.iter().copied().max()? {
        for (qid, _) in counts.iter().enumerate().filter(|(_, count)| index < **count) {
            let ring =
                CommandRing::new(device.as_fd(), uring::HEADER_BYTES, MAX_TRANSFER_BYTES + 1);
            rings.push((u16::try_from(qid).ok()?, ring.ok()?));
        }
    }
    Some(Rings(rings))
}

/// How many threads each queue gets; `None` if there are too many CPUs.
fn plan(
    possible: &str,
    online: &str,
    thread_count: usize,
    least_count: usize,
) -> Option<Vec<usize>> {
    let queue_count = cpus(possible)?.into_iter().max()? + 1;
    let online = cpus(online)?;
    if queue_count > MAX_QUEUE_COUNT || online.len() > MAX_ONLINE_COUNT {
        return None;
    }
    // A CPU that is plugged in later has one, which is enough but slower.
    let mut counts = vec![least_count.max(1); queue_count];
    let share = thread_count.div_ceil(online.len().max(1));
    for cpu in online {
        *counts.get_mut(cpu)? = share.max(MIN_THREADS_PER_QUEUE).max(least_count);
    }
    Some(counts)
}

/// The numbers in a list such as `0-3,8`.
fn cpus(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // The kernel has no more than some thousands.
        numbers.extend(first..=last.min(u16::MAX.into()));
    }
    Some(numbers)
}

/// Starts a thread for each ring; they end when the file system is unmounted. At most `block_limit`
/// of them block at a time, which is less than the threads of any queue. So each queue keeps one
/// that answers. A thread cannot be added: the kernel gives an entry that is registered later none
/// of the requests that wait already.
pub(crate) fn start<'scope>(
    rings: Rings,
    scope: &'scope Scope<'scope, '_>,
    server: &'scope impl FileSystem,
    block_limit: usize,
) {
    let early = server.answers_early().then(|| large_writes::start(scope, server));
    let handoff = early.transpose().unwrap_or_else(|error| stop(&error));
    let blocked = Arc::new(Blocked::new(block_limit));
    for (qid, ring) in rings.0 {
        let builder = std::thread::Builder::new().name(format!("fuse-cpu{qid}"));
        let (handoff, blocked) = (handoff.clone(), blocked.clone());
        let queue = Queue { ring, server, handoff, blocked, input: Vec::new() };
        let serve = move || queue.serve(qid).unwrap_or_else(|error| stop(&error));
        if let Err(error) = builder.spawn_scoped(scope, serve) {
            stop(&error);
        }
    }
}

/// Clients of a CPU whose queue is not served would wait for ever; when the process ends they get
/// an error.
fn stop(error: &io::Error) -> ! {
    tracing::error!(
        %error,
        "a queue to the kernel cannot be served; stopping as after a power cut"
    );
    std::process::abort()
}

/// One thread of a queue.
struct Queue<'a, S> {
    ring: CommandRing,
    server: &'a S,
    handoff: Option<Handoff>,
    blocked: Arc<Blocked>,
    /// What was sent, out of the way of the answer.
    input: Vec<u8>,
}

fn is_unmounted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV)
    )
}

fn command(qid: u16, commit_id: u64) -> [u8; COMMAND_BYTES] {
    let mut command = [0; COMMAND_BYTES];
    let request = UringCmdReq { commit_id, qid, ..UringCmdReq::default() };
    command[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
    command
}

impl<S: FileSystem> Queue<'_, S> {
    /// Answers queue `qid` until the file system is unmounted.
    fn serve(mut self, qid: u16) -> io::Result<()> {
        let mut operation = uring::CMD_REGISTER;
        let mut commit_id = 0;
        loop {
            match self.ring.run(operation, command(qid, commit_id)) {
                Ok(()) => {}
                Err(error) if is_unmounted(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            commit_id = self.serve_entry();
            operation = uring::CMD_COMMIT_AND_FETCH;
        }
    }

    /// Answers the request in the ring's buffers, in the same buffers, and returns its number.
    fn serve_entry(&mut self) -> u64 {
        let (header, payload) = self.ring.buffers();
        let entry = read::<UringEntInOut>(&header[uring::ENT_IN_OUT]);
        let asked = read::<InHeader>(&header[uring::IN_OUT]);
        let opcode = Opcode::from_wire(asked.opcode);
        let sent_bytes = (entry.payload_sz as usize).min(payload.len());
        let head = &header[uring::OP_IN];
        let (answer, payload_bytes) = match (opcode, &self.handoff) {
            (Some(Opcode::Write), Some(handoff)) if sent_bytes >= large_writes::MIN_BYTES => {
                let (answer, out) = handoff.serve(asked, head, &payload[..sent_bytes]);
                payload[..out.len()].copy_from_slice(&out);
                (answer, out.len())
            }
            // What was sent stays where it is, the short answer is built beside it.
            (Some(Opcode::Write | Opcode::Setxattr), _) => {
                let mut room = [0; SHORT_REPLY_BYTES];
                let mut reply = Reply::new(&mut room).with_stand_ins(&*self.blocked);
                let body = Body::split(head, &payload[..sent_bytes]);
                let request = Request { header: asked, opcode, body };
                let answer = serve_guarded(self.server, &request, &mut reply);
                payload[..reply.payload().len()].copy_from_slice(reply.payload());
                (answer, reply.payload().len())
            }
            // A name or two were sent; the answer is built where the kernel takes it from.
            _ => {
                self.input.clear();
                self.input.extend_from_slice(&payload[..sent_bytes]);
                let mut reply = Reply::new(payload).with_stand_ins(&*self.blocked);
                let body = Body::split(head, &self.input);
                let request = Request { header: asked, opcode, body };
                let answer = serve_guarded(self.server, &request, &mut reply);
                (answer, reply.payload().len())
            }
        };
        // Each request of a ring wants an answer.
        let answer = if answer == Answer::Silent { Answer::Failed(Errno::IO) } else { answer };
        let out = out_header(asked.unique, answer, payload_bytes).expect("it is not silent");
        let payload_sz = out.len - size_of::<OutHeader>() as u32;
        write(&mut header[uring::IN_OUT], &out);
        write(&mut header[uring::ENT_IN_OUT], &UringEntInOut { payload_sz, ..entry });
        entry.commit_id
    }
}

fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).expect("the header has room for it").0
}

fn write<T: IntoBytes + zerocopy::Immutable>(bytes: &mut [u8], value: &T) {
    value.write_to_prefix(bytes).expect("the header has room for it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(cpus("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpus("0\n"), Some(vec![0]));
        assert_eq!(cpus("0-2,8-9,12\n"), Some(vec![0, 1, 2, 8, 9, 12]));
        assert_eq!(cpus(""), None);
    }

    #[test]
    fn every_queue_has_threads() {
        assert_eq!(plan("0-1", "0-1", 32, 1), Some(vec![16, 16]));
        assert_eq!(plan("0-63", "0-63", 32, 1), Some(vec![2; 64]));
        assert_eq!(plan("0-3", "0-3", 1, 1), Some(vec![2; 4]));
        assert_eq!(plan("0-3", "0-3", 32, 9), Some(vec![9; 4]));
        assert_eq!(plan("0-256", "0-1", 32, 1), None);
        assert_eq!(plan("0-127", "0-64", 32, 1), None);
    }

    /// As on many virtual machines: two CPUs, and room for more.
    #[test]
    fn cpus_that_are_not_there_cost_one_thread() {
        let counts = plan("0-239", "0,2", 32, 1).unwrap();
        assert_eq!((counts[0], counts[1], counts[2]), (16, 1, 16));
        assert_eq!(counts.iter().sum::<usize>(), 2 * 16 + 238);
        let counts = plan("0-3", "0-1", 32, 4).unwrap();
        assert_eq!(counts, [16, 16, 4, 4], "with atomic writes all but one may wait");
    }
}
