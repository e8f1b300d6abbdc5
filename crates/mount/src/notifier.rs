//! Telling the kernel to drop what it has cached of a file.
//!
//! The kernel drops pages only when no request for them is under way any more, so the thread that
//! tells it must not be needed to answer one: a thread of its own does. To drop attributes waits for
//! nothing and is done by any thread. What happens if the process is killed while it waits: [`crate::guard`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};
use crate::guard::Guarded;

/// What is to be dropped: bytes of one node, from and how many. 0 bytes: up to the end.
pub(crate) type Range = (u64, u64);

/// A negative offset: no pages, the attributes alone.
const ATTRIBUTES: Range = (u64::MAX, 0);

struct Job {
    node: u64,
    ranges: Vec<Range>,
    done: Sender<()>,
}

/// Sends a message to the kernel.
type SendMessage = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// The thread that tells the kernel; it ends with the value.
pub(crate) struct Notifier {
    send: SendMessage,
    guarded: Guarded,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// A request to drop pages that is on its way.
pub(crate) struct Dropping(Receiver<()>);

impl Dropping {
    /// Returns when the pages are gone. Requests for them must find a thread meanwhile.
    pub(crate) fn wait(self) {
        if self.0.recv().is_err() {
            tracing::error!("the notifier has ended before its time");
        }
    }
}

impl Notifier {
    /// Writes to `/dev/fuse`.
    pub(crate) fn for_device(device: OwnedFd) -> io::Result<Notifier> {
        Notifier::start(move |message| match rustix::io::write(&device, message) {
            // The kernel does not know the node or the request (any more), or is not there.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN) => {}
            Err(errno) => tracing::error!(%errno, "telling the kernel to drop what it has cached"),
        })
    }

    /// Hands each message to `send`.
    pub(crate) fn start(send: impl Fn(&[u8]) + Send + Sync + 'static) -> io::Result<Notifier> {
        let send: SendMessage = Arc::new(send);
        let (jobs, incoming) = channel::<Job>();
        let sender = send.clone();
        let guarded = Guarded::default();
        let guard = guarded.clone();
        let thread = std::thread::Builder::new().name("notifier".into()).spawn(move || {
            for job in incoming {
                guard.watch();
                job.ranges.iter().for_each(|range| sender(&message(job.node, *range)));
                // Nobody need be waiting.
                let _ = job.done.send(());
            }
        })?;
        Ok(Notifier { send, guarded, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has these bytes of a node dropped from the cache, and its attributes.
    pub(crate) fn drop_pages(&self, node: u64, ranges: Vec<Range>) -> Dropping {
        let (done, waiting) = channel();
        let jobs = self.jobs.as_ref().expect("it is taken only when the value is dropped");
        jobs.send(Job { node, ranges, done }).expect("the thread ends after the sender");
        Dropping(waiting)
    }

    /// [`Notifier::drop_pages`] in this thread, which returns when the pages are gone. Requests for them must
    /// find a thread meanwhile.
    pub(crate) fn drop_pages_here(&self, node: u64, range: Range) {
        self.guarded.watch();
        (self.send)(&message(node, range));
    }

    /// Its guard, to be set.
    pub(crate) fn guarded(&self) -> Guarded {
        self.guarded.clone()
    }

    /// Has the attributes of a node asked for anew. Any thread may call it.
    pub(crate) fn drop_attributes(&self, node: u64) {
        (self.send)(&message(node, ATTRIBUTES));
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It panics only where a log message does.
            let _ = thread.join();
        }
    }
}

fn message(node: u64, (off, len_bytes): Range) -> Vec<u8> {
    let body = NotifyInvalInodeOut { ino: node, off, len: len_bytes };
    let len = size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>();
    let header = OutHeader { len: len as u32, error: NOTIFY_INVAL_INODE, unique: 0 };
    [header.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    type Log = Arc<Mutex<Vec<Vec<u8>>>>;

    fn logging() -> (Notifier, Log) {
        let sent = Log::default();
        let log = sent.clone();
        (Notifier::start(move |bytes| log.lock().unwrap().push(bytes.to_vec())).unwrap(), sent)
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        bytes.chunks(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap())).collect()
    }

    #[test]
    fn each_range_is_one_message() {
        let (notifier, sent) = logging();
        notifier.drop_pages(12, vec![(4096, 8192), (65_536, 0)]).wait();
        let sent = sent.lock().unwrap();
        assert_eq!(sent.len(), 2);
        assert_eq!(numbers(&sent[0]), [40 | 2 << 32, 0, 12, 4096, 8192]);
        assert_eq!(numbers(&sent[1])[2..], [12, 65_536, 0]);
    }

    #[test]
    fn any_thread_may_send() {
        let (notifier, sent) = logging();
        notifier.drop_attributes(13);
        notifier.drop_pages_here(14, (7, 9));
        let sent = sent.lock().unwrap();
        assert_eq!(numbers(&sent[0])[2..], [13, u64::MAX, 0]);
        assert_eq!(numbers(&sent[1])[2..], [14, 7, 9]);
    }
}
