//! Telling the kernel to drop what it has cached of a file.
//!
//! The kernel answers only when no request for these pages is under way any more, so that whoever
//! tells it must not be needed to answer one: a thread of its own does.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};

/// What is to be dropped: bytes of one node, from and how many. 0 bytes: up to the end.
pub(crate) type Range = (u64, u64);

struct Job {
    node: u64,
    ranges: Vec<Range>,
    done: Sender<()>,
}

/// The thread that tells the kernel; it ends with the value.
pub(crate) struct Notifier {
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
    /// Writes notifications to `/dev/fuse`.
    pub(crate) fn for_device(device: OwnedFd) -> io::Result<Notifier> {
        Notifier::start(move |message| match rustix::io::write(&device, message) {
            // The kernel does not know the node (any more), or is not there: nothing is cached.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN) => {}
            Err(errno) => tracing::error!(%errno, "dropping pages of an aborted atomic write"),
        })
    }

    /// Hands each notification to `send`.
    pub(crate) fn start(send: impl Fn(&[u8]) + Send + 'static) -> io::Result<Notifier> {
        let (jobs, incoming) = channel::<Job>();
        let thread = std::thread::Builder::new().name("notifier".into()).spawn(move || {
            for job in incoming {
                job.ranges.iter().for_each(|range| send(&message(job.node, *range)));
                // Nobody need be waiting.
                let _ = job.done.send(());
            }
        })?;
        Ok(Notifier { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has these bytes of a node dropped from the cache, and its attributes.
    pub(crate) fn drop_pages(&self, node: u64, ranges: Vec<Range>) -> Dropping {
        let (done, waiting) = channel();
        let jobs = self.jobs.as_ref().expect("it is taken only when the value is dropped");
        jobs.send(Job { node, ranges, done }).expect("the thread ends after the sender");
        Dropping(waiting)
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
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_range_is_one_message() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        let notifier = Notifier::start(move |bytes| log.lock().unwrap().push(bytes.to_vec()));
        notifier.unwrap().drop_pages(12, vec![(4096, 8192), (65_536, 0)]).wait();
        let sent = sent.lock().unwrap();
        assert_eq!(sent.len(), 2);
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap())).collect()
        };
        assert_eq!(numbers(&sent[0]), [40 | 2 << 32, 0, 12, 4096, 8192]);
        assert_eq!(numbers(&sent[1])[2..], [12, 65_536, 0]);
    }
}
