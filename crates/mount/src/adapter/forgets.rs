//! Waits for the space of deleted files.
//!
//! The space of a deleted file is free when the kernel's FORGET arrives. The kernel sends it when
//! the last program has closed the file, in a queue of its own, so it arrives a moment later. A
//! program that deletes a file and then writes another must not get `ENOSPC` meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device::sync::{Condvar, Mutex};
use ext4::Volume;

/// A request that finds no space waits this long for a FORGET, at most.
const STALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The FORGETs, and a way to wait for the next.
pub(super) struct Forgets {
    seen: Mutex<Seen>,
    changed: Condvar,
    stall_timeout: Duration,
    /// The number of threads that may wait at a time: a thread that waits reads no FORGET.
    waiter_limit: usize,
    /// From now on it may be that no thread reads FORGETs.
    is_stopped: AtomicBool,
}

#[derive(Default)]
struct Seen {
    /// FORGETs whose handling has begun.
    begun_count: u64,
    /// FORGETs whose handling is done.
    done_count: u64,
    waiter_count: usize,
}

impl Default for Forgets {
    fn default() -> Forgets {
        Forgets {
            seen: Mutex::default(),
            changed: Condvar::new(),
            stall_timeout: STALL_TIMEOUT,
            waiter_limit: usize::MAX,
            is_stopped: AtomicBool::new(false),
        }
    }
}

impl Forgets {
    pub(super) fn limit_waiters(&mut self, count: usize) {
        self.waiter_limit = count;
    }

    /// The threads that read requests end.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// Whether what was waited for in vain may still come, when requests are read again.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Deals with a FORGET.
    pub(super) fn note<T>(&self, forget: impl FnOnce() -> T) -> T {
        self.seen.lock().begun_count += 1;
        let done = forget();
        self.seen.lock().done_count += 1;
        self.changed.notify_all();
        done
    }

    /// Tries again what found no space, while some may be on its way back.
    pub(super) fn with_space<T, E>(
        &self,
        volume: &Volume,
        is_no_space: impl Fn(&E) -> bool,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut deadline = None;
        loop {
            let seen_count = self.seen.lock().done_count;
            match attempt() {
                Err(e)
                    if is_no_space(&e)
                        && self.wait_beyond(
                            seen_count,
                            *deadline.get_or_insert_with(|| Instant::now() + self.stall_timeout),
                            volume.has_deleted_files(),
                        ) => {}
                result => return result,
            }
        }
    }

    /// `true` as soon as more than `seen_count` FORGETs are done. `false` if there is none until
    /// the deadline, if none is to come, or if as many threads as may wait do so already.
    fn wait_beyond(&self, seen_count: u64, deadline: Instant, is_to_come: bool) -> bool {
        let mut seen = self.seen.lock();
        // A FORGET that has begun is to come, too. The caller does not know of it, because its file
        // is not in the list of deleted files any more.
        let is_to_come = is_to_come || seen.begun_count > seen.done_count;
        let is_none = |seen: &Seen| seen.done_count <= seen_count;
        if is_none(&seen) {
            if !is_to_come || seen.waiter_count >= self.waiter_limit {
                return false;
            }
            seen.waiter_count += 1;
            while is_none(&seen) && Instant::now() < deadline {
                seen = self.changed.wait_until(seen, deadline).0;
            }
            seen.waiter_count -= 1;
        }
        !is_none(&seen) && Instant::now() < deadline
    }
}

#[cfg(test)]
mod tests {
    use ext4::{DataMode, InodeNo};
    use fuse::Answer;
    use fuse::abi::{ForgetIn, WriteIn};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::adapter::harness::{adapter, full, serve};

    #[test]
    fn a_write_waits_for_the_space_of_a_deleted_file() {
        let mut adapter = adapter(DataMode::Journal);
        let (old, new) = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let (old, new, _) = full(volume);
            volume.unlink(InodeNo::ROOT, b"old").unwrap();
            (old, new)
        };
        let write = WriteIn { size: 1 << 16, ..WriteIn::default() };
        let write = [write.as_bytes(), &vec![8; 1 << 16]].concat();
        // A program may still have `old` open: there was no FORGET.
        assert_eq!(serve(&adapter, 16, new, &write), Answer::Failed(rustix::io::Errno::NOSPC));
        // However late the other thread runs.
        adapter.forgets.stall_timeout = Duration::from_secs(600);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(STALL_TIMEOUT / 4);
                let forget = ForgetIn { nlookup: 1 };
                assert_eq!(serve(&adapter, 2, old, forget.as_bytes()), Answer::Silent);
            });
            assert_eq!(serve(&adapter, 16, new, &write), Answer::Done);
        });
        adapter.close().unwrap();
    }

    #[test]
    fn a_waiting_thread_sees_the_next_forget() {
        let forgets = Forgets::default();
        forgets.note(|| ());
        let far = Instant::now() + Duration::from_secs(600);
        assert!(forgets.wait_beyond(0, far, true));
        assert!(forgets.wait_beyond(0, far, false), "it came during the attempt");
        assert!(!forgets.wait_beyond(1, Instant::now() + STALL_TIMEOUT / 10, true));
        assert!(!forgets.wait_beyond(0, Instant::now(), true), "those of others do not prolong it");
        assert!(!forgets.wait_beyond(1, far, false), "there is none to come");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| while !forgets.wait_beyond(1, far, true) {});
            forgets.note(|| ());
            waiting.join().unwrap();
        });
        std::thread::scope(|scope| {
            let (begun, end) = std::sync::mpsc::channel();
            let forgets = &forgets;
            let slow = scope.spawn(move || forgets.note(|| end.recv().unwrap()));
            while forgets.seen.lock().begun_count < 3 {
                std::thread::yield_now();
            }
            let waiting = scope.spawn(|| forgets.wait_beyond(2, far, false));
            while forgets.seen.lock().waiter_count == 0 {
                std::thread::yield_now();
            }
            begun.send(()).unwrap();
            slow.join().unwrap();
            assert!(waiting.join().unwrap(), "its file is deleted no more, its space not free yet");
        });
    }

    /// A thread that waits reads no requests. If all threads waited, no thread would read the
    /// FORGET.
    #[test]
    fn one_thread_is_left_to_read() {
        let mut forgets = Forgets::default();
        forgets.limit_waiters(1);
        let far = Instant::now() + Duration::from_secs(600);
        std::thread::scope(|scope| {
            let forgets = &forgets;
            let waiting = scope.spawn(|| forgets.wait_beyond(0, far, true));
            while forgets.seen.lock().waiter_count == 0 {
                std::thread::yield_now();
            }
            assert!(!forgets.wait_beyond(0, far, true));
            forgets.note(|| ());
            assert!(waiting.join().unwrap());
        });
        forgets.limit_waiters(0);
        assert!(!forgets.wait_beyond(1, far, true), "there is one thread only");
    }
}
