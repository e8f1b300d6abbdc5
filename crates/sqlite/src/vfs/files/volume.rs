//! A database on a volume, its WAL and its rollback journal.

use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;

use crate::abi::control::Control;
use crate::abi::ffi::*;
use crate::abi::file::{File, Hook};
use crate::abi::guard::guard;
use crate::abi::real::Real;
use crate::checkpoint::link::Link;
use crate::failure::Failure;
use crate::vfs::index::Index;
use crate::vfs::steps::{rolled, settled, then};
use crate::vfs::wal_reset::Call;
use crate::volume::file::{Promise, Volume};
use crate::volume::memory::Memory;
use crate::volume::rollback::{Rollback, Step};

/// The file of the database.
pub struct MainOnVolume {
    below: Rc<Real>,
    pub volume: Rc<Volume>,
    index: Index,
}

impl MainOnVolume {
    /// The file that is open as `below`.
    pub fn new(below: Rc<Real>, volume: Volume, link: Option<Link>) -> MainOnVolume {
        MainOnVolume { below, volume: Rc::new(volume), index: Index::new(link) }
    }

    /// Gives a call to the connection's transaction, then writes what is held for other files.
    /// Returns SQLite's result code; `None`: the call of the file below is still to be made.
    fn before(
        &self,
        default: c_int,
        f: impl FnOnce(&mut Rollback) -> Result<Step, Failure>,
    ) -> Option<c_int> {
        let done = rolled(default, || f(&mut self.volume.rollback()));
        done.or_else(|| Some(settled(|| self.volume.settle())).filter(|code| *code != SQLITE_OK))
    }
}

impl File for MainOnVolume {
    fn below(&self) -> &Real {
        &self.below
    }

    fn read(&self, at: u64, to: &mut [u8]) -> c_int {
        let done = rolled(SQLITE_IOERR, || self.volume.rollback().read(at, to));
        done.unwrap_or_else(|| self.below.x_read(at, to))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        let done = rolled(SQLITE_IOERR_WRITE, || self.volume.rollback().write(at, bytes));
        done.unwrap_or_else(|| self.below.x_write(at, bytes))
    }

    fn truncate(&self, size: i64) -> c_int {
        let bytes = u64::try_from(size).unwrap_or(0);
        let done = self.before(SQLITE_IOERR, |it| it.truncate(bytes));
        done.unwrap_or_else(|| self.below.x_truncate(size))
    }

    fn sync(&self, flags: c_int) -> c_int {
        let done = self.before(SQLITE_IOERR_FSYNC, Rollback::sync);
        done.unwrap_or_else(|| self.below.x_sync(flags))
    }

    fn size(&self) -> Result<i64, c_int> {
        let mut held_end = 0;
        let done = self.before(SQLITE_IOERR, |it| {
            held_end = it.end();
            Ok(Step::Below)
        });
        let size = done.map_or_else(|| self.below.x_file_size(), Err)?;
        Ok(size.max(i64::try_from(held_end).unwrap_or(i64::MAX)))
    }

    fn lock(&self, level: c_int) -> c_int {
        match self.index.before_file_lock(level) {
            true => self.below.x_lock(level),
            false => SQLITE_BUSY,
        }
    }

    fn unlock(&self, level: c_int) -> c_int {
        guard((), || self.volume.rollback().unlocked(level));
        self.below.x_unlock(level)
    }

    fn control(&self, control: &Control<'_>) -> c_int {
        self.index.control(control);
        let done = rolled(SQLITE_IOERR, || {
            let mut rollback = self.volume.rollback();
            match control.operation() {
                SQLITE_FCNTL_SIZE_HINT => rollback.grow(),
                SQLITE_FCNTL_SYNC => {
                    rollback.complete(control.has_argument()).map(|()| Step::Below)
                }
                SQLITE_FCNTL_CHUNK_SIZE | SQLITE_FCNTL_BEGIN_ATOMIC_WRITE => {
                    rollback.stop_offering().map(|()| Step::Below)
                }
                _ => Ok(Step::Below),
            }
        });
        done.unwrap_or_else(|| pass_control(&self.volume, &self.below, control))
    }

    fn characteristics(&self) -> c_int {
        self.volume.promise().characteristics(self.below.x_device_characteristics())
    }

    fn lock_index(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        let is_unlock = flags & SQLITE_SHM_UNLOCK != 0;
        if !is_unlock {
            let rc = self.index.before_lock(&self.below, offset);
            if rc != SQLITE_OK {
                return rc;
            }
        }
        let settled = settled(|| self.volume.lock(offset == WAL_WRITE_LOCK));
        // An unlock goes on: other connections wait for the lock, and the frames that could not be
        // written are not committed.
        if settled != SQLITE_OK && !is_unlock {
            return settled;
        }
        self.index.change(&self.below, Call { offset, count, flags })
    }

    fn order_index(&self) {
        // Commit frames are written when they come. This is for what may be held nevertheless:
        // readers trust the shared memory only after what follows the barrier. An error is reported
        // by the next call, because the frames stay held.
        let _ = settled(|| self.volume.settle());
        self.below.x_shm_barrier();
    }

    fn unmap_index(&self, delete: c_int) -> c_int {
        self.index.unmap(&self.below, delete)
    }

    fn may_be_mapped(&self) -> bool {
        !guard(true, || self.volume.rollback().holds_pages())
    }

    fn hook(&self) -> Option<Arc<dyn Hook>> {
        self.index.hook()
    }

    fn close(&self) -> c_int {
        self.index.close();
        settled(|| {
            self.volume.rollback().unlocked(SQLITE_LOCK_NONE);
            Ok(())
        })
    }
}

/// The file of the database's WAL, whose frames are held back.
pub struct WalOnVolume {
    pub below: Rc<Real>,
    pub volume: Rc<Volume>,
    pub promise: Promise,
}

impl WalOnVolume {
    fn settle(&self) -> c_int {
        settled(|| self.volume.settle())
    }
}

impl File for WalOnVolume {
    fn below(&self) -> &Real {
        &self.below
    }

    fn read(&self, at: u64, to: &mut [u8]) -> c_int {
        then(self.settle(), || self.below.x_read(at, to))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        settled(|| self.volume.write_wal(at, bytes))
    }

    fn truncate(&self, size: i64) -> c_int {
        then(self.settle(), || self.below.x_truncate(size))
    }

    fn sync(&self, flags: c_int) -> c_int {
        then(self.settle(), || self.below.x_sync(flags))
    }

    fn size(&self) -> Result<i64, c_int> {
        match self.settle() {
            SQLITE_OK => self.below.x_file_size(),
            code => Err(code),
        }
    }

    fn control(&self, control: &Control<'_>) -> c_int {
        pass_control(&self.volume, &self.below, control)
    }

    fn characteristics(&self) -> c_int {
        self.promise.characteristics(self.below.x_device_characteristics())
    }

    fn close(&self) -> c_int {
        settled(|| self.volume.close_wal())
    }
}

/// The file of the database's rollback journal, which is in memory, or whose records are held back.
pub struct JournalOnVolume {
    pub below: Rc<Real>,
    pub volume: Rc<Volume>,
}

impl JournalOnVolume {
    /// Gives a call to the journal if it is in memory. Otherwise writes what is held. Returns
    /// SQLite's result code; `None`: the call of the file below is still to be made.
    fn before(
        &self,
        default: c_int,
        in_memory: impl FnOnce(&mut Memory) -> Result<(), Failure>,
    ) -> Option<c_int> {
        let done = rolled(default, || match self.volume.rollback().memory() {
            Some(memory) => in_memory(memory).map(|()| Step::Done),
            None => Ok(Step::Below),
        });
        done.or_else(|| Some(settled(|| self.volume.settle())).filter(|code| *code != SQLITE_OK))
    }
}

impl File for JournalOnVolume {
    fn below(&self) -> &Real {
        &self.below
    }

    fn read(&self, at: u64, to: &mut [u8]) -> c_int {
        let short = Failure::Sqlite { code: SQLITE_IOERR_SHORT_READ, what: "reading" };
        let done = self.before(SQLITE_IOERR, |memory| match memory.read(at, to) {
            true => Ok(()),
            false => Err(short),
        });
        done.unwrap_or_else(|| self.below.x_read(at, to))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        settled(|| self.volume.rollback().write_journal(at, bytes))
    }

    fn truncate(&self, size: i64) -> c_int {
        let bytes = u64::try_from(size).unwrap_or(0);
        let done = self.before(SQLITE_IOERR, |memory| {
            memory.truncate(bytes);
            Ok(())
        });
        done.unwrap_or_else(|| self.below.x_truncate(size))
    }

    fn sync(&self, flags: c_int) -> c_int {
        let done = self.before(SQLITE_IOERR_FSYNC, |_| Ok(()));
        done.unwrap_or_else(|| self.below.x_sync(flags))
    }

    fn size(&self) -> Result<i64, c_int> {
        let mut bytes = 0;
        let done = self.before(SQLITE_IOERR, |memory| {
            bytes = memory.bytes().len();
            Ok(())
        });
        match done {
            Some(SQLITE_OK) => Ok(i64::try_from(bytes).unwrap_or(i64::MAX)),
            Some(code) => Err(code),
            None => self.below.x_file_size(),
        }
    }

    fn control(&self, control: &Control<'_>) -> c_int {
        let unknown = Failure::Sqlite { code: SQLITE_NOTFOUND, what: "asking" };
        let done = rolled(SQLITE_IOERR, || match self.volume.rollback().memory() {
            Some(_) => Err(unknown),
            None => Ok(Step::Below),
        });
        done.unwrap_or_else(|| pass_control(&self.volume, &self.below, control))
    }

    fn close(&self) -> c_int {
        settled(|| {
            self.volume.rollback().closed();
            Ok(())
        })
    }
}

/// Passes a control on. Everything that is held is written before the size of the database may
/// change.
fn pass_control(volume: &Volume, below: &Real, control: &Control<'_>) -> c_int {
    let is_size = control.operation() == SQLITE_FCNTL_SIZE_HINT;
    let code = if is_size { settled(|| volume.settle()) } else { SQLITE_OK };
    then(code, || below.x_control(control))
}
