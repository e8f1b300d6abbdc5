//! The times of files whose data the kernel has ([`crate::Order::Sync`]).
//!
//! The kernel gives a write its time, and tells it once, in a request of its own. Until then the
//! file has the time at which the data arrived: after a crash no file has new data and an old time.
//! But the kernel may tell the time before the data arrive: at a rename, or because requests
//! overtake each other. The file would keep the time of the arrival, which no program has seen. So
//! the times that were told last are kept here, and the file gets them back when the kernel forgets
//! it.

use std::collections::HashMap;

use device::sync::Mutex;
use ext4::{Attr, InodeNo, SetAttr, SetTime, Timestamp, Volume, VolumeAs};

/// Two times of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Times {
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Times {
    fn of(attr: &Attr) -> Times {
        Times { mtime: attr.mtime, ctime: attr.ctime }
    }
}

struct Entry {
    /// What the kernel has, as far as it is known here.
    told: Times,
    /// What the last arrival gave the file.
    arrived: Option<Times>,
    /// Requests under way that bring data.
    arriving_count: u32,
}

/// Files of which data have arrived since the kernel told both times.
#[derive(Default)]
pub(super) struct KernelTimes(Mutex<HashMap<InodeNo, Entry>>);

/// A request that changes the content of a file, from before the change until after it.
pub(super) struct Arrival<'a> {
    times: &'a KernelTimes,
    volume: VolumeAs<&'a Volume>,
    ino: InodeNo,
}

impl KernelTimes {
    pub(super) fn arrival<'a>(
        &'a self,
        volume: VolumeAs<&'a Volume>,
        ino: InodeNo,
    ) -> ext4::Result<Arrival<'a>> {
        let mut entries = self.0.lock();
        match entries.get_mut(&ino) {
            Some(entry) => entry.arriving_count += 1,
            None => {
                let told = Times::of(&volume.peek_attr(ino)?);
                entries.insert(ino, Entry { told, arrived: None, arriving_count: 1 });
            }
        }
        Ok(Arrival { times: self, volume, ino })
    }

    /// The kernel told times, which the file has now; `None`: not this one.
    pub(super) fn note_told(
        &self,
        ino: InodeNo,
        mtime: Option<Timestamp>,
        ctime: Option<Timestamp>,
    ) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(&ino) else { return };
        if mtime.is_some() && ctime.is_some() && entry.arriving_count == 0 {
            entries.remove(&ino);
            return;
        }
        entry.told.mtime = mtime.unwrap_or(entry.told.mtime);
        entry.told.ctime = ctime.unwrap_or(entry.told.ctime);
    }

    /// The kernel has sent everything about the file, and forgets it.
    pub(super) fn give_back(&self, volume: &Volume, ino: InodeNo) {
        let entry = self.0.lock().remove(&ino);
        if let Some(entry) = entry {
            entry.give_back(volume, ino);
        }
    }

    /// The kernel has sent everything.
    pub(super) fn give_back_all(&self, volume: &Volume) {
        let entries = std::mem::take(&mut *self.0.lock());
        entries.into_iter().for_each(|(ino, entry)| entry.give_back(volume, ino));
    }
}

impl Entry {
    /// What was changed after the data arrived stays. On a failure the times of the arrival stay,
    /// as after a crash.
    fn give_back(self, volume: &Volume, ino: InodeNo) {
        let Some(arrived) = self.arrived else { return };
        let Ok(attr) = volume.peek_attr(ino) else { return };
        let now = Times::of(&attr);
        let pick = |now, arrived, told| if now == arrived { told } else { now };
        let mtime = pick(now.mtime, arrived.mtime, self.told.mtime);
        let ctime = pick(now.ctime, arrived.ctime, self.told.ctime);
        if attr.link_count == 0 || now == (Times { mtime, ctime }) {
            return;
        }
        let times =
            SetAttr { mtime: Some(SetTime::To(mtime)), ctime: Some(ctime), ..SetAttr::default() };
        if let Err(error) = volume.as_root().set_attr(ino, &times) {
            tracing::debug!(%ino, %error, "giving a file its times back");
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let arrived = self.volume.peek_attr(self.ino).ok().map(|attr| Times::of(&attr));
        let mut entries = self.times.0.lock();
        if let Some(entry) = entries.get_mut(&self.ino) {
            entry.arriving_count -= 1;
            entry.arrived = arrived;
        }
    }
}

#[cfg(test)]
mod tests {
    use ext4::{DataMode, Owner};
    use fuse::Answer;
    use fuse::abi::{ForgetIn, SetattrIn, WRITE_CACHE, WriteIn, fattr, init};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::adapter::Adapter;
    use crate::adapter::harness::{adapter, make, serve};

    const FORGET: u32 = 2;
    const SETATTR: u32 = 4;
    const WRITE: u32 = 16;
    /// Any time long ago.
    const TOLD: (u64, u64) = (1000, 2000);

    fn rig() -> (Adapter, InodeNo) {
        let mut adapter = adapter(DataMode::Auto);
        adapter.agreed_flags |= init::WRITEBACK_CACHE;
        let ino = make(adapter.volume.read().as_ref().unwrap(), b"file", Owner::default());
        (adapter, ino)
    }

    fn arrive(adapter: &Adapter, ino: InodeNo) {
        let write = WriteIn { size: 4, write_flags: WRITE_CACHE, ..WriteIn::default() };
        let body = [write.as_bytes(), b"data"].concat();
        assert_eq!(serve(adapter, WRITE, ino, &body), Answer::Done);
    }

    fn tell(adapter: &Adapter, ino: InodeNo, (mtime, ctime): (u64, u64)) {
        let valid = fattr::MTIME | fattr::CTIME;
        let times = SetattrIn { valid, mtime, ctime, ..SetattrIn::default() };
        assert_eq!(serve(adapter, SETATTR, ino, times.as_bytes()), Answer::Done);
    }

    fn forget(adapter: &Adapter, ino: InodeNo) {
        let forget = ForgetIn { nlookup: 1 };
        assert_eq!(serve(adapter, FORGET, ino, forget.as_bytes()), Answer::Silent);
    }

    fn times(adapter: &Adapter, ino: InodeNo) -> (u64, u64) {
        let attr = adapter.volume.read().as_ref().unwrap().get_attr(ino).unwrap();
        (attr.mtime.seconds.cast_unsigned(), attr.ctime.seconds.cast_unsigned())
    }

    #[test]
    fn data_that_arrive_after_their_time_leave_it_as_it_was_told() {
        let (adapter, ino) = rig();
        arrive(&adapter, ino);
        tell(&adapter, ino, TOLD);
        assert_eq!(times(&adapter, ino), TOLD);
        arrive(&adapter, ino);
        arrive(&adapter, ino);
        assert!(times(&adapter, ino) > TOLD, "a crash must not leave new data with an old time");
        forget(&adapter, ino);
        assert_eq!(times(&adapter, ino), TOLD);
        adapter.close().unwrap();
    }

    #[test]
    fn the_time_that_is_told_after_the_data_holds() {
        let (adapter, ino) = rig();
        arrive(&adapter, ino);
        tell(&adapter, ino, TOLD);
        forget(&adapter, ino);
        assert_eq!(times(&adapter, ino), TOLD);
        assert!(adapter.kernel_times.0.lock().is_empty());
        adapter.close().unwrap();
    }

    #[test]
    fn a_time_that_is_told_while_data_arrive_is_given_back() {
        let (adapter, ino) = rig();
        {
            let volume = adapter.volume.read();
            let volume = volume.as_ref().unwrap();
            let arrival = adapter.kernel_times.arrival(volume.as_root(), ino).unwrap();
            tell(&adapter, ino, TOLD);
            volume.as_root().write(ino, 0, b"data").unwrap();
            drop(arrival);
        }
        forget(&adapter, ino);
        assert_eq!(times(&adapter, ino), TOLD);
        adapter.close().unwrap();
    }

    #[test]
    fn a_change_after_the_arrival_stays() {
        let (adapter, ino) = rig();
        tell(&adapter, ino, TOLD);
        arrive(&adapter, ino);
        let ctime = Some(Timestamp { seconds: 3000, nanoseconds: 0 });
        let changed = SetAttr { ctime, ..SetAttr::default() };
        adapter.volume.read().as_ref().unwrap().as_root().set_attr(ino, &changed).unwrap();
        forget(&adapter, ino);
        assert_eq!(times(&adapter, ino), (TOLD.0, 3000));
        adapter.close().unwrap();
    }
}
