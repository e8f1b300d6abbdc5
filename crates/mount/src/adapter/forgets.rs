//! Space that is on its way back.
//!
//! A deleted file gives back its space with the kernel's FORGET, which is sent when the last
//! program has closed it but arrives on a way of its own, a moment later. A program that deletes
//! a file and writes another must not be told that the disk is full meanwhile.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long a FORGET may be on its way.
const PATIENCE: Duration = Duration::from_millis(100);

/// How many FORGETs were dealt with, and a way to wait for the next.
pub(super) struct Forgets {
    count: Mutex<u64>,
    changed: Condvar,
    patience: Duration,
}

impl Default for Forgets {
    fn default() -> Forgets {
        Forgets { count: Mutex::default(), changed: Condvar::new(), patience: PATIENCE }
    }
}

impl Forgets {
    pub(super) fn note_one(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    pub(super) fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// `true` as soon as there were more than `seen_count`, `false` when patience ends without one.
    pub(super) fn wait_beyond(&self, seen_count: u64) -> bool {
        let mut count = self.count.lock();
        let is_none = |count: &mut u64| *count <= seen_count;
        !self.changed.wait_while_for(&mut count, is_none, self.patience).timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::MemoryDevice;
    use ext4::{InodeNo, NewNode, Owner};
    use zerocopy::IntoBytes;

    use super::super::fuzz_test::{adapter, image};
    use super::*;
    use crate::abi::{ForgetIn, InHeader, WriteIn};
    use crate::connection::Serve;
    use crate::reply::{Answer, Reply};
    use crate::request::{Body, Request};

    fn serve(server: &impl Serve, opcode: u32, ino: InodeNo, body: &[u8]) -> Answer {
        let header = InHeader { opcode, nodeid: u64::from(ino.0), ..InHeader::default() };
        let opcode = crate::abi::Opcode::from_wire(opcode);
        let mut room = [0; 256];
        let request = Request { header, opcode, body: Body::whole(body) };
        server.serve(&request, &mut Reply::new(&mut room))
    }

    #[test]
    fn a_write_waits_for_the_space_of_a_deleted_file() {
        let bytes = std::fs::read(image().path()).unwrap();
        let mut adapter =
            adapter(Arc::new(MemoryDevice::from_bytes(bytes, 512)), ext4::DataMode::Journal);
        let (old, new) = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let make = |name: &[u8]| {
                let owner = Owner::default();
                let made = volume.make(InodeNo::ROOT, name, NewNode::Regular, 0o644, 0, owner);
                made.unwrap().ino
            };
            let (old, new) = (make(b"old"), make(b"new"));
            let data = vec![7; 1 << 16];
            let mut offset = 0;
            while let Ok(written_bytes) = volume.write(old, offset, &data) {
                offset += written_bytes as u64;
            }
            volume.unlink(InodeNo::ROOT, b"old").unwrap();
            (old, new)
        };
        let write = WriteIn { size: 1 << 16, ..WriteIn::default() };
        let write = [write.as_bytes(), &vec![8; 1 << 16]].concat();
        // Somebody still has it open, as far as we know.
        assert_eq!(serve(&adapter, 16, new, &write), Answer::Failed(rustix::io::Errno::NOSPC));
        // However late the other thread runs.
        adapter.forgets.patience = Duration::from_secs(600);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(PATIENCE / 4);
                let forget = ForgetIn { nlookup: 1 };
                assert_eq!(serve(&adapter, 2, old, forget.as_bytes()), Answer::Silent);
            });
            assert_eq!(serve(&adapter, 16, new, &write), Answer::Done);
        });
        adapter.close().unwrap();
    }

    #[test]
    fn whoever_waits_sees_the_next_one() {
        let forgets = Forgets::default();
        forgets.note_one();
        assert!(forgets.wait_beyond(0));
        assert!(!forgets.wait_beyond(1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| while !forgets.wait_beyond(1) {});
            forgets.note_one();
            waiting.join().unwrap();
        });
        assert_eq!(forgets.count(), 2);
    }
}
