//! Large writes that came through a ring.
//!
//! A file system may answer a large write before it has written the data ([`Reply::send_early`]).
//! But an answer gives the ring's buffer back to the kernel. So the data are copied, and another
//! thread serves the write; the ring's thread waits for the answer only. There are at most as many
//! copies as threads on both sides.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use device::AlignedBuf;
use device::sync::{Condvar, Mutex};

use crate::abi::{InHeader, Opcode, OutHeader};
use crate::file_system::{FileSystem, serve_guarded};
use crate::reply::{Answer, Reply, SHORT_REPLY_BYTES};
use crate::request::{Body, Request};
use crate::transport::receive::MAX_TRANSFER_BYTES;

/// A smaller write is home before another thread would have begun with it.
pub(crate) const MIN_BYTES: usize = 256 << 10;
/// Threads that write data home.
const THREAD_COUNT: usize = 4;

/// Where ring threads hand their large writes.
#[derive(Clone)]
pub(crate) struct Handoff {
    jobs: Sender<Job>,
    spares: Arc<Mutex<Vec<AlignedBuf>>>,
}

/// A write to be served.
struct Job {
    header: InHeader,
    head: Vec<u8>,
    data: AlignedBuf,
    data_bytes: usize,
    answered: Arc<Answered>,
}

/// The answer, once there is one.
#[derive(Default)]
struct Answered {
    answer: Mutex<Option<(Answer, Vec<u8>)>>,
    changed: Condvar,
}

impl Answered {
    fn set(&self, answer: Answer, payload: &[u8]) {
        *self.answer.lock() = Some((answer, payload.to_vec()));
        self.changed.notify_one();
    }

    fn wait(&self) -> (Answer, Vec<u8>) {
        let mut answer = self.answer.lock();
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            answer = self.changed.wait(answer);
        }
    }
}

/// Starts the threads. They end when every [`Handoff`] is dropped.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    server: &'scope impl FileSystem,
) -> io::Result<Handoff> {
    let (jobs, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let spares = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..THREAD_COUNT {
        let (receiver, spares) = (receiver.clone(), spares.clone());
        let builder = std::thread::Builder::new().name("fuse-write".into());
        builder.spawn_scoped(scope, move || serve_jobs(&receiver, &spares, server))?;
    }
    Ok(Handoff { jobs, spares })
}

impl Handoff {
    /// Serves a WRITE with its structure in `head` and its data in `data`. Returns the answer and
    /// its payload as soon as there is one.
    pub(crate) fn serve(&self, header: InHeader, head: &[u8], data: &[u8]) -> (Answer, Vec<u8>) {
        let spare = self.spares.lock().pop();
        // Larger than a transfer: it then is in huge pages, which direct I/O likes.
        let mut copy = spare.unwrap_or_else(|| AlignedBuf::zeroed(MAX_TRANSFER_BYTES + 1));
        copy[..data.len()].copy_from_slice(data);
        let answered = Arc::new(Answered::default());
        let job = Job {
            header,
            head: head.to_vec(),
            data: copy,
            data_bytes: data.len(),
            answered: answered.clone(),
        };
        self.jobs.send(job).expect("the threads run until every handoff is dropped");
        answered.wait()
    }
}

fn serve_jobs(
    receiver: &Mutex<Receiver<Job>>,
    spares: &Mutex<Vec<AlignedBuf>>,
    server: &impl FileSystem,
) {
    loop {
        let Ok(job) = receiver.lock().recv() else { return };
        serve_job(&job, server);
        spares.lock().push(job.data);
    }
}

fn serve_job(job: &Job, server: &impl FileSystem) {
    let early = |_: &OutHeader, payload: &[u8]| {
        job.answered.set(Answer::Done, payload);
        true
    };
    let mut room = [0; SHORT_REPLY_BYTES];
    let mut reply = Reply::new(&mut room).with_early(&early);
    let body = Body::split(&job.head, &job.data[..job.data_bytes]);
    let request = Request { header: job.header, opcode: Some(Opcode::Write), body };
    let answer = serve_guarded(server, &request, &mut reply);
    if reply.header(job.header.unique, answer).is_some() {
        job.answered.set(answer, reply.payload());
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Answers early when the data begin with 1, fails when they begin with 2; counts what it has
    /// finished.
    #[derive(Default)]
    struct Server {
        finished: Mutex<Vec<u8>>,
        gate: Mutex<()>,
    }

    impl FileSystem for Server {
        fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
            let mut body = request.body;
            let first = body.take_bytes(4096).unwrap()[0];
            reply.push(&u32::from(first)).unwrap();
            if first == 1 {
                reply.send_early(request.header.unique);
            }
            drop(self.gate.lock());
            self.finished.lock().push(first);
            if first == 2 { Answer::Failed(Errno::NOSPC) } else { Answer::Done }
        }
    }

    #[test]
    fn the_answer_comes_as_soon_as_there_is_one() {
        let server = Server::default();
        std::thread::scope(|scope| {
            let handoff = start(scope, &server).unwrap();
            let serve = |first| handoff.serve(InHeader::default(), &[], &[first; 4096]);
            let closed = server.gate.lock();
            assert_eq!(serve(1), (Answer::Done, 1u32.to_ne_bytes().to_vec()));
            assert!(server.finished.lock().is_empty(), "it was answered early");
            drop(closed);
            assert_eq!(serve(3), (Answer::Done, 3u32.to_ne_bytes().to_vec()));
            assert_eq!(serve(2).0, Answer::Failed(Errno::NOSPC));
        });
        let mut finished = server.finished.into_inner();
        finished.sort_unstable();
        assert_eq!(finished, [1, 2, 3]);
    }
}
