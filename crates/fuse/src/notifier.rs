//! Tells the kernel to drop what it has cached of a file.
//!
//! The kernel drops a page only when no request for it is under way. So the thread that tells it
//! must not be needed to answer such a request: the notifier has a thread of its own. To drop
//! attributes waits for nothing, and any thread may do it. A process that is killed while its
//! notifier waits needs a [`Guard`](crate::Guard).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};
use crate::guard::Guarded;
use crate::stopper::Stopper;

/// Bytes of a file: offset and length. A length of 0 means up to the end.
pub type ByteRange = (u64, u64);

/// A negative offset: no pages, the attributes alone.
const ATTRIBUTES: ByteRange = (u64::MAX, 0);

struct Job {
    node: u64,
    ranges: Vec<ByteRange>,
    done: Sender<()>,
}

/// Sends a message to the kernel.
type SendMessage = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Tells the kernel to drop cached pages and attributes. It has one thread, which ends when the
/// value is dropped. [`crate::Connection::notifier`] makes one.
pub struct Notifier {
    send: SendMessage,
    guarded: Guarded,
    stopper: Stopper,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The end of a call of [`Notifier::drop_pages`].
#[must_use = "without waiting, the pages may still be there"]
pub struct Dropping(Receiver<()>);

impl Dropping {
    /// Returns when the pages are gone. Until then a thread must be free to answer requests for
    /// them.
    pub fn wait(self) {
        if self.0.recv().is_err() {
            tracing::error!("the notifier has ended before its time");
        }
    }
}

impl Notifier {
    /// Writes to `/dev/fuse`.
    pub(crate) fn for_device(
        device: OwnedFd,
        guarded: Guarded,
        stopper: Stopper,
    ) -> io::Result<Notifier> {
        let send = move |message: &[u8]| match rustix::io::write(&device, message) {
            // The kernel does not know the node or the request (any more), or is not there.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN) => {}
            Err(errno) => tracing::error!(%errno, "telling the kernel to drop what it has cached"),
        };
        Notifier::guarded(send, guarded, stopper)
    }

    /// A notifier without a connection: it hands each message to `send`. For tests of a file
    /// system.
    pub fn start(send: impl Fn(&[u8]) + Send + Sync + 'static) -> io::Result<Notifier> {
        Notifier::guarded(send, Guarded::default(), Stopper::default())
    }

    fn guarded(
        send: impl Fn(&[u8]) + Send + Sync + 'static,
        guarded: Guarded,
        stopper: Stopper,
    ) -> io::Result<Notifier> {
        let send: SendMessage = Arc::new(send);
        let (jobs, incoming) = channel::<Job>();
        let sender = send.clone();
        let (guard, waits) = (guarded.clone(), stopper.clone());
        let thread = std::thread::Builder::new().name("notifier".into()).spawn(move || {
            for job in incoming {
                guard.watch();
                job.ranges.iter().for_each(|range| sender(&message(job.node, *range)));
                // It may be that no thread waits.
                let _ = job.done.send(());
                waits.end_job();
            }
        })?;
        Ok(Notifier { send, guarded, stopper, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Drops these bytes of a node from the kernel's cache, and its attributes. The kernel writes
    /// changed pages back first. Returns at once.
    pub fn drop_pages(&self, node: u64, ranges: Vec<ByteRange>) -> Dropping {
        let (done, waiting) = channel();
        let jobs = self.jobs.as_ref().expect("it is taken only when the value is dropped");
        self.stopper.begin_job();
        jobs.send(Job { node, ranges, done }).expect("the thread ends after the sender");
        Dropping(waiting)
    }

    /// [`Notifier::drop_pages`] in the calling thread: returns when the pages are gone. Until then
    /// another thread must be free to answer requests for them.
    pub fn drop_pages_here(&self, node: u64, range: ByteRange) {
        self.guarded.watch();
        (self.send)(&message(node, range));
    }

    /// [`Notifier::drop_attributes`] in the notifier's thread. For a thread that the kernel waits
    /// for: dropping waits for a node that is being removed.
    pub fn drop_attributes_later(&self, node: u64) {
        drop(self.drop_pages(node, vec![ATTRIBUTES]));
    }

    /// Drops the attributes of a node: the kernel asks for them when it needs them again. Any
    /// thread may call it.
    pub fn drop_attributes(&self, node: u64) {
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

fn message(node: u64, (off, len_bytes): ByteRange) -> Vec<u8> {
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
