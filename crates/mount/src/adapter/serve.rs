//! Requests in, answers out: what comes before the operation of a request, and after it.

use ext4::InodeNo;
use fuse::abi::{BatchForgetIn, ForgetIn, ForgetOne, InHeader, Opcode};
use fuse::{Answer, FileSystem, Reply, Request};
use rustix::io::Errno;

use crate::adapter::call::Call;
use crate::adapter::failure::Failure;
use crate::adapter::spending;
use crate::adapter::state::Adapter;
use crate::closing::mark_closing;
use crate::convert;
use crate::errno::errno;
use crate::session_options::Order;
use crate::stat::AdapterCounters;

impl FileSystem for Adapter {
    fn answers_early(&self) -> bool {
        let volume = self.volume.read();
        volume.as_ref().is_some_and(|volume| !volume.data_mode().is_journaled())
    }

    fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        AdapterCounters::add(&self.counters.requests, 1);
        let Some(opcode) = request.opcode else { return Answer::Failed(Errno::NOSYS) };
        match opcode {
            Opcode::Destroy => return self.destroy(),
            Opcode::Interrupt => return Answer::Silent,
            Opcode::Forget | Opcode::BatchForget => {
                if self.forgets.note(|| self.forget(request)).is_err() {
                    tracing::warn!(len_bytes = request.header.len, "a garbled FORGET");
                }
                return Answer::Silent;
            }
            _ => {}
        }
        let mut served = self.operate(opcode, request, reply);
        if let Err(Failure::NotWritable) = served {
            self.make_writable();
            served = self.operate(opcode, request, reply);
        }
        match served {
            Ok(()) => Answer::Done,
            Err(Failure::Later) => Answer::Later,
            Err(Failure::HandedOver) => Answer::HandedOver,
            Err(failure) => {
                let errno = self.report(opcode, &request.header, failure);
                if spending::is_written_back(request) {
                    self.note_lost_write(request.header.nodeid, errno);
                }
                Answer::Failed(errno)
            }
        }
    }
}

impl Adapter {
    fn operate(
        &self,
        opcode: Opcode,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let volume = self.volume.read();
        let volume = volume.as_ref().ok_or(Errno::IO)?;
        let header = request.header;
        let is_no_space =
            |failure: &Failure| matches!(failure, Failure::Volume(ext4::Error::NoSpace));
        let served = self.forgets.with_space(volume, is_no_space, || {
            spending::spend(volume, request, |volume| {
                reply.clear();
                let body = request.body;
                Call { adapter: self, volume, header, body, reply: &mut *reply }.dispatch(opcode)
            })
        });
        match served {
            // Who goes on with the mount reads the FORGET. A flush under way cannot wait for that.
            Err(failure)
                if is_no_space(&failure)
                    && self.forgets.is_stopped()
                    && volume.has_deleted_files()
                    && !self.flushes.has_any() =>
            {
                Err(Failure::Later)
            }
            served => served,
        }
    }

    fn destroy(&self) -> Answer {
        mark_closing();
        match self.close() {
            Ok(()) => Answer::Done,
            Err(error) => {
                tracing::error!(%error, "closing the volume");
                Answer::Failed(errno(&error))
            }
        }
    }

    fn note_lost_write(&self, node: u64, errno: Errno) {
        let Ok(ino) = convert::inode_of(node) else { return };
        self.lost_writes.note(ino, errno);
        if let (Order::Sync, Some(notifier)) = (self.order(), &self.notifier) {
            notifier.drop_attributes_later(node);
        }
    }

    fn forget(&self, request: &Request<'_>) -> Result<(), Errno> {
        let volume = self.volume.read();
        let Some(volume) = volume.as_ref() else { return Ok(()) };
        let forget_one = |node: u64, lookup_count: u64| {
            let Ok(ino) = convert::inode_of(node) else { return };
            // The kernel never counts lookups of the root, it is always there.
            if ino != InodeNo::ROOT {
                self.privileges.changed(ino);
                self.lost_writes.forget(ino);
                self.kernel_times.give_back(volume, ino);
                if let Some(atomic) = &self.atomic {
                    atomic.forget(ino);
                }
                volume.forget(ino, lookup_count);
            }
        };
        let mut body = request.body;
        if request.opcode == Some(Opcode::Forget) {
            let forget: ForgetIn = body.take()?;
            forget_one(request.header.nodeid, forget.nlookup);
        } else {
            let batch: BatchForgetIn = body.take()?;
            for _ in 0..batch.count {
                let one: ForgetOne = body.take()?;
                forget_one(one.nodeid, one.nlookup);
            }
        }
        Ok(())
    }

    fn report(&self, opcode: Opcode, header: &InHeader, failure: Failure) -> Errno {
        match failure {
            Failure::Errno(errno) => errno,
            Failure::Later | Failure::HandedOver => Errno::BUSY,
            Failure::NotWritable => Errno::ROFS,
            Failure::Volume(error) => self.counters.failed(opcode, header, &error),
        }
    }
}
