//! The requests that wait for the kernel to write back what it has collected.
//!
//! Each holds the volume, and so does each write that it waits for. To close the volume is to wait
//! for all that hold it, and then no other request gets it. So closing first waits for these
//! requests to end, and lets no new one begin.

use device::sync::{Condvar, Mutex};

#[derive(Default)]
struct State {
    count: usize,
    is_ended: bool,
}

/// How many requests wait, and whether more may begin to.
#[derive(Default)]
pub(super) struct Flushes {
    state: Mutex<State>,
    changed: Condvar,
}

/// One request that waits.
pub(super) struct Flush<'a>(&'a Flushes);

impl Flushes {
    /// `None`: the volume is being closed.
    pub(super) fn begin(&self) -> Option<Flush<'_>> {
        let mut state = self.state.lock();
        if state.is_ended {
            return None;
        }
        state.count += 1;
        Some(Flush(self))
    }

    /// Whether one is under way.
    pub(super) fn has_any(&self) -> bool {
        self.state.lock().count > 0
    }

    /// Waits for those under way. From now on none begins.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        while state.count > 0 {
            state = self.changed.wait(state);
        }
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.state.lock().count -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use ext4::{DataMode, InodeNo, Owner};
    use fuse::abi::{Rename2In, WriteIn, init};
    use fuse::{Answer, Notifier};
    use zerocopy::IntoBytes;

    use crate::adapter::harness;

    const WRITE: u32 = 16;
    const RENAME2: u32 = 45;
    /// The kernel's number of the root.
    const ROOT_NODE: InodeNo = InodeNo(1);
    const LONG: Duration = Duration::from_secs(120);

    /// A request that waits for a write, while another thread closes the volume.
    #[test]
    fn regression_closing_lets_the_write_through_that_a_request_waits_for() {
        let mut adapter = harness::adapter(DataMode::Auto);
        let (reached, at_kernel) = channel();
        let (written, go_on) = channel();
        let go_on = device::sync::Mutex::new(go_on);
        let kernel = move |_: &[u8]| {
            reached.send(()).unwrap();
            go_on.lock().recv().unwrap();
        };
        adapter.notifier = Some(Arc::new(Notifier::start(kernel).unwrap()));
        adapter.agreed_flags |= init::WRITEBACK_CACHE;
        let new = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            harness::make(volume, b"old", Owner::default());
            harness::make(volume, b"new", Owner::default())
        };
        let adapter = Arc::new(adapter);
        let (done, all_done) = channel();
        let thread = |work: Box<dyn FnOnce(&super::super::Adapter) + Send>| {
            let (adapter, done) = (adapter.clone(), done.clone());
            std::thread::spawn(move || {
                work(&adapter);
                done.send(()).unwrap();
            });
        };
        thread(Box::new(|adapter| {
            let rename = Rename2In { newdir: 1, ..Rename2In::default() };
            let body = [rename.as_bytes(), b"new\0old\0"].concat();
            assert_eq!(harness::serve(adapter, RENAME2, ROOT_NODE, &body), Answer::Done);
        }));
        at_kernel.recv_timeout(LONG).unwrap();
        thread(Box::new(|adapter| adapter.close().unwrap()));
        let deadline = std::time::Instant::now() + LONG;
        while !adapter.flushes.state.lock().is_ended {
            assert!(std::time::Instant::now() < deadline, "closing does not wait here");
            std::thread::yield_now();
        }
        thread(Box::new(move |adapter| {
            let write = WriteIn { size: 4, ..WriteIn::default() };
            let body = [write.as_bytes(), b"data"].concat();
            assert_eq!(harness::serve(adapter, WRITE, new, &body), Answer::Done);
            written.send(()).unwrap();
        }));
        for _ in 0..3 {
            all_done.recv_timeout(LONG).expect("one waits for the other");
        }
    }
}
