//! Waits for the space of deleted files.
//!
//! The space of a deleted file is free when the kernel's FORGET arrives. The kernel sends it when
//! the last program has closed the file, in a queue of its own, so it arrives a moment later. A
//! program that deletes a file and then writes another must not get `ENOSPC` meanwhile.

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
    /// Waiting at a time at most: a thread that waits reads no FORGET.
    waiter_limit: usize,
}

#[derive(Default)]
struct Seen {
    /// FORGETs that were begun, and those that were dealt with.
    begun_count: u64,
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
        }
    }
}

impl Forgets {
    pub(super) fn limit_waiters(&mut self, count: usize) {
        self.waiter_limit = count;
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

    /// `true` as soon as more than `seen_count` were dealt with; `false` when there was none until the deadline, or none
    /// is to come, or as many as may wait already.
    fn wait_beyond(&self, seen_count: u64, deadline: Instant, is_to_come: bool) -> bool {
        let mut seen = self.seen.lock();
        // The file of one that is under way is no deleted file any more.
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
    use std::sync::Arc;

    use device::MemoryDevice;
    use ext4::{DataMode, InodeNo, NewNode, Owner};
    use fuse::abi::{ForgetIn, InHeader, WriteIn};
    use fuse::{Answer, Body, FileSystem, Reply, Request};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::adapter::Adapter;
    use crate::adapter::fuzz_test::{adapter, image};

    fn served(mode: DataMode) -> Adapter {
        let bytes = std::fs::read(image().path()).unwrap();
        adapter(Arc::new(MemoryDevice::from_bytes(bytes, 512)), mode)
    }

    fn make(volume: &Volume, name: &[u8], owner: Owner) -> InodeNo {
        volume.make(InodeNo::ROOT, name, NewNode::Regular, 0o644, 0, owner).unwrap().ino
    }

    /// Two files, the first of which takes all the space; and how many bytes that is.
    fn full(volume: &Volume) -> (InodeNo, InodeNo, u64) {
        let [old, new] = [&b"old"[..], b"new"].map(|name| make(volume, name, Owner::default()));
        let (data, mut size_bytes) = (vec![7; 1 << 16], 0);
        while let Ok(written_bytes) = volume.write(old, size_bytes, &data) {
            size_bytes += written_bytes as u64;
        }
        (old, new, size_bytes)
    }

    fn serve(server: &impl FileSystem, opcode: u32, ino: InodeNo, body: &[u8]) -> Answer {
        serve_for(0, server, opcode, ino, body)
    }

    fn serve_for(
        uid: u32,
        server: &impl FileSystem,
        opcode: u32,
        ino: InodeNo,
        body: &[u8],
    ) -> Answer {
        let header = InHeader { opcode, nodeid: u64::from(ino.0), uid, ..InHeader::default() };
        let opcode = fuse::abi::Opcode::from_wire(opcode);
        let mut room = [0; 256];
        let request = Request { header, opcode, body: Body::whole(body) };
        server.serve(&request, &mut Reply::new(&mut room))
    }

    #[test]
    fn a_write_waits_for_the_space_of_a_deleted_file() {
        let mut adapter = served(DataMode::Journal);
        let (old, new) = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let (old, new, _) = full(volume);
            volume.unlink(InodeNo::ROOT, b"old").unwrap();
            (old, new)
        };
        let write = WriteIn { size: 1 << 16, ..WriteIn::default() };
        let write = [write.as_bytes(), &vec![8; 1 << 16]].concat();
        // Somebody still has it open, as far as we know.
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

    /// The kernel takes an answer about pages that it writes back for success, however much was written.
    #[test]
    fn regression_pages_that_find_no_space_are_an_error() {
        let adapter = served(DataMode::Journal);
        let (new, rest) = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let (old, new, size_bytes) = full(volume);
            let size_bytes = Some(size_bytes.saturating_sub(5 * 4096));
            volume.set_attr(old, &ext4::SetAttr { size_bytes, ..Default::default() }).unwrap();
            volume.sync().unwrap();
            (new, vec![8; 1 << 16])
        };
        let request = |write_flags| {
            let write = WriteIn { size: 1 << 16, write_flags, ..WriteIn::default() };
            [write.as_bytes(), &rest].concat()
        };
        let no_space = Answer::Failed(rustix::io::Errno::NOSPC);
        assert_eq!(serve(&adapter, 16, new, &request(fuse::abi::WRITE_CACHE)), no_space);
        assert_eq!(serve(&adapter, 16, new, &request(0)), Answer::Done, "a short write is one");
        adapter.close().unwrap();
    }

    /// An ioctl needs no more than a descriptor.
    #[test]
    fn regression_ioctls_change_only_ones_own_files() {
        let adapter = served(DataMode::Auto);
        let owner = Owner { uid: 1000, gid: 1000 };
        let file = make(adapter.volume.read().as_ref().unwrap(), b"file", owner);
        let request = |cmd, value: u32| {
            let ioctl = fuse::abi::IoctlIn { cmd, in_size: 4, ..Default::default() };
            [ioctl.as_bytes(), &value.to_ne_bytes()].concat()
        };
        const SET_MODE: u32 = 0x4004_4fe1;
        const SET_FLAGS: u32 = 0x4008_6602;
        const SET_FLAGS_32: u32 = 0x4004_6602;
        let refused = Answer::Failed(rustix::io::Errno::PERM);
        let flags = adapter.volume.read().as_ref().unwrap().get_attr(file).unwrap().flags;
        for (uid, cmd, value, expected) in [
            (1001, SET_MODE, 1, refused),
            (1000, SET_MODE, 1, Answer::Done),
            (0, SET_MODE, 0, Answer::Done),
            (1001, SET_FLAGS, flags | 0x40, refused),
            (1000, SET_FLAGS, flags | 0x40, Answer::Done),
            (1000, SET_FLAGS, flags | 0x50, refused),
            (0, SET_FLAGS, flags | 0x50, Answer::Done),
            (1001, SET_FLAGS_32, flags, Answer::Failed(rustix::io::Errno::NOTTY)),
        ] {
            let answer = serve_for(uid, &adapter, 39, file, &request(cmd, value));
            assert_eq!(answer, expected, "{uid} {cmd:x} {value:x}");
        }
        adapter.close().unwrap();
    }

    #[test]
    fn whoever_waits_sees_the_next_one() {
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

    /// Who waits reads nothing: with all of them waiting the one that they wait for would not be read.
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
