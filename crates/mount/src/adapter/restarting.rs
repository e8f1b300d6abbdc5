//! A restart: another process goes on with the mount, or this one with another program
//! ([`crate::RESTART_XATTR`]).
//!
//! The request that asks for it is answered by the next program. So it returns when the volume is
//! served again.

use std::sync::{Arc, OnceLock};

use device::sync::Mutex;
use fuse::Stopper;

use crate::successor::Successor;

/// Whether the mount can be restarted, and who waits for that.
#[derive(Default)]
pub(crate) struct Restarting {
    /// Present if there may be a program that can go on.
    successor: OnceLock<(Arc<dyn Successor>, Stopper)>,
    /// Requests, and the payloads of their answers.
    waiting: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Restarting {
    /// From now on the mount can be restarted, if the successor says so.
    pub(crate) fn allow(&self, successor: Arc<dyn Successor>, stopper: Stopper) {
        self.successor.get_or_init(|| (successor, stopper));
    }

    /// What has to go on, if there is one that may.
    pub(super) fn successor(&self) -> Option<&(Arc<dyn Successor>, Stopper)> {
        self.successor.get()
    }

    /// The request `unique` gets this payload as its answer after the restart.
    pub(super) fn note_waiting(&self, unique: u64, payload: &[u8]) {
        self.waiting.lock().push((unique, payload.to_vec()));
    }

    /// The requests that the next program has to answer, with the payloads of their answers.
    pub(crate) fn take_waiting(&self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.waiting.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use ext4::{DataMode, InodeNo};
    use fuse::Answer;
    use fuse::abi::GetxattrIn;
    use fuse::abi::WriteIn;
    use rustix::io::Errno;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::adapter::Adapter;
    use crate::adapter::harness::{adapter, full, serve, serve_for};
    use crate::stat::{RESTART_XATTR, RESTARTED};

    const GETXATTR: u32 = 22;
    const WRITE: u32 = 16;
    const ROOT_NODE: InodeNo = InodeNo(1);

    struct Ready;

    impl Successor for Ready {
        fn check(&self) -> Result<(), String> {
            Ok(())
        }

        fn keep(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn request(size: u32) -> Vec<u8> {
        let get = GetxattrIn { size, padding: 0 };
        [get.as_bytes(), RESTART_XATTR, b"\0"].concat()
    }

    fn waiting(adapter: &Adapter) -> Vec<Vec<u8>> {
        adapter.restarting.take_waiting().into_iter().map(|(_, payload)| payload).collect()
    }

    #[test]
    fn a_request_to_restart_is_answered_by_the_next_program() {
        let adapter = adapter(DataMode::Auto);
        // Without a successor, as through io_uring, the answer is the reason.
        assert_eq!(serve(&adapter, GETXATTR, ROOT_NODE, &request(100)), Answer::Done);
        adapter.restarting.allow(Arc::new(Ready), Stopper::default());
        let refused = Answer::Failed(Errno::PERM);
        assert_eq!(serve_for(1000, &adapter, GETXATTR, ROOT_NODE, &request(100)), refused);
        assert_eq!(serve(&adapter, GETXATTR, ROOT_NODE, &request(0)), Answer::Done);
        let short = Answer::Failed(Errno::RANGE);
        assert_eq!(serve(&adapter, GETXATTR, ROOT_NODE, &request(4)), short);
        assert!(waiting(&adapter).is_empty());
        assert_eq!(serve(&adapter, GETXATTR, ROOT_NODE, &request(100)), Answer::HandedOver);
        assert_eq!(waiting(&adapter), [RESTARTED.as_bytes()]);
        assert!(adapter.hand_over().unwrap().is_empty());
        adapter.close().unwrap();
    }

    /// The space may come with a FORGET that the next program reads.
    #[test]
    fn a_write_that_finds_no_space_is_served_by_the_next_program() {
        let adapter = adapter(DataMode::Auto);
        let new = {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let (_, new, _) = full(volume);
            volume.unlink(InodeNo::ROOT, b"old").unwrap();
            new
        };
        let write = WriteIn { size: 1 << 16, ..WriteIn::default() };
        let write = [write.as_bytes(), &vec![8; 1 << 16]].concat();
        assert_eq!(serve(&adapter, WRITE, new, &write), Answer::Failed(Errno::NOSPC));
        adapter.forgets.stop();
        assert_eq!(serve(&adapter, WRITE, new, &write), Answer::Later);
        adapter.close().unwrap();
    }
}
