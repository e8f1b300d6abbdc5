//! FUSE over io_uring: a queue for each CPU, and threads that answer it.
//!
//! The kernel puts a request into the queue of the CPU on which the client runs; a thread of that
//! queue takes it, answers it, and waits for the next in one system call (through `/dev/fuse` it
//! takes two). An entry is one request at a time; the kernel takes the entry that became free last,
//! so the threads of a queue that are not needed cost nothing.
//!
//! The threads are not bound to the CPU of their queue. The scheduler wakes them beside their
//! client as often as binding would, and lets them follow the disk's interrupt: a write and
//! fsync took 132 µs with bound threads, 106 with free ones, 124 through `/dev/fuse`; a SETATTR
//! 9.5, 9.5 and 15.8.
//!
//! FORGET, INTERRUPT and what comes before the queues are ready still arrive through `/dev/fuse`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::Scope;

use device::{COMMAND_BYTES, CommandRing};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, Opcode, OutHeader, UringCmdReq, UringEntInOut, uring};
use crate::connection::{MAX_TRANSFER_BYTES, Serve};
use crate::handoff::{self, Handoff};
use crate::reply::{Answer, Reply, SHORT_REPLY_BYTES, out_header};
use crate::request::{Body, Request};
use crate::workers::serve_guarded;

/// More queues than this and we stay with `/dev/fuse`: each has threads of its own.
const MAX_QUEUE_COUNT: usize = 256;
/// Threads of a queue, at least: while one waits for the disk another answers.
const MIN_THREADS_PER_QUEUE: usize = 2;

/// The rings of all queues, each with the number of its queue.
pub(crate) struct Rings(Vec<(u16, CommandRing)>);

impl Rings {
    pub(crate) fn threads_per_queue(&self) -> usize {
        self.0.iter().filter(|(qid, _)| *qid == 0).count()
    }
}

/// Makes the rings, `thread_count` of them if that gives each queue `least_count`; `None` where they
/// cannot be had.
pub(crate) fn make_rings(
    device: &OwnedFd,
    thread_count: usize,
    least_count: usize,
) -> Option<Rings> {
    // One queue for each CPU that could ever be plugged in.
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let queue_count = highest_cpu(&possible)? + 1;
    if queue_count > MAX_QUEUE_COUNT {
        return None;
    }
    let mut rings = Vec::new();
    for _ in 0..threads_per_queue(thread_count, queue_count).max(least_count) {
        for qid in 0..queue_count {
            let ring =
                CommandRing::new(device.as_fd(), uring::HEADER_BYTES, MAX_TRANSFER_BYTES + 1);
            rings.push((u16::try_from(qid).ok()?, ring.ok()?));
        }
    }
    Some(Rings(rings))
}

/// The highest number in a list such as `0-3,8`.
fn highest_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

fn threads_per_queue(thread_count: usize, queue_count: usize) -> usize {
    thread_count.div_ceil(queue_count).max(MIN_THREADS_PER_QUEUE)
}

/// Starts a thread for each ring; they end when the file system is unmounted.
pub(crate) fn start<'scope>(
    rings: Rings,
    scope: &'scope Scope<'scope, '_>,
    server: &'scope impl Serve,
) {
    let early = server.answers_early().then(|| handoff::start(scope, server));
    let handoff = early.transpose().unwrap_or_else(|error| stop(&error));
    for (qid, ring) in rings.0 {
        let builder = std::thread::Builder::new().name(format!("fuse-cpu{qid}"));
        let queue = Queue { ring, server, handoff: handoff.clone(), input: Vec::new() };
        let serve = move || queue.serve(qid).unwrap_or_else(|error| stop(&error));
        if let Err(error) = builder.spawn_scoped(scope, serve) {
            stop(&error);
        }
    }
}

/// Clients of a CPU whose queue is not served would wait for ever; when the process ends they get
/// an error.
fn stop(error: &io::Error) -> ! {
    tracing::error!(%error, "a queue to the kernel cannot be served; stopping as after a power cut");
    std::process::abort()
}

/// One thread of a queue.
struct Queue<'a, S> {
    ring: CommandRing,
    server: &'a S,
    handoff: Option<Handoff>,
    /// What was sent, out of the way of the answer.
    input: Vec<u8>,
}

fn is_unmounted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CANCELED | Errno::NODEV))
}

fn command(qid: u16, commit_id: u64) -> [u8; COMMAND_BYTES] {
    let mut command = [0; COMMAND_BYTES];
    let request = UringCmdReq { commit_id, qid, ..UringCmdReq::default() };
    command[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
    command
}

impl<S: Serve> Queue<'_, S> {
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
            (Some(Opcode::Write), Some(handoff)) if sent_bytes >= handoff::MIN_BYTES => {
                let (answer, out) = handoff.serve(asked, head, &payload[..sent_bytes]);
                payload[..out.len()].copy_from_slice(&out);
                (answer, out.len())
            }
            // What was sent stays where it is, the short answer is built beside it.
            (Some(Opcode::Write | Opcode::Setxattr), _) => {
                let mut room = [0; SHORT_REPLY_BYTES];
                let mut reply = Reply::new(&mut room);
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
                let mut reply = Reply::new(payload);
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
        assert_eq!(highest_cpu("0-1\n"), Some(1));
        assert_eq!(highest_cpu("0\n"), Some(0));
        assert_eq!(highest_cpu("0-3,8-127\n"), Some(127));
        assert_eq!(highest_cpu(""), None);
    }

    #[test]
    fn every_queue_has_threads() {
        assert_eq!(threads_per_queue(16, 2), 8);
        assert_eq!(threads_per_queue(16, 64), 2);
        assert_eq!(threads_per_queue(1, 4), 2);
    }
}
