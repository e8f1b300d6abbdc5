//! NVRAM that records its stores and fences, for any number of threads.
//!
//! A fence covers only the stores of its own thread. So each thread that stores or fences has a
//! number in the record, as if it were a disk: thread 0 of the memory is [`FIRST_THREAD`]. All
//! threads use the same bytes. A store holds the lock from its first event to its last one, so the
//! order of the record is the order in which the memory changed.

use std::thread::{self, ThreadId};

use device::sync::Mutex;
use device::{Durability, Nvram, Result};
use onejournal_testing::Image;
use onejournal_testing::drive::Recorder;
use onejournal_testing::drive::record::Data;

/// Number in the record of the memory's first thread. Smaller numbers are disks.
pub const FIRST_THREAD: u8 = 1;

struct RamState {
    /// What loads see.
    image: Image,
    /// Threads that have stored or fenced, in the order of their first operation.
    threads: Vec<ThreadId>,
}

/// The memory.
pub struct RamNvram {
    state: Mutex<RamState>,
    len_bytes: u64,
    recorder: Recorder,
}

impl RamNvram {
    /// Memory that durably holds `image`.
    pub fn new(image: Image, recorder: Recorder) -> RamNvram {
        let len_bytes = image.size_bytes();
        RamNvram { state: Mutex::new(RamState { image, threads: Vec::new() }), len_bytes, recorder }
    }

    /// What loads see.
    pub fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    fn check(&self, offset: u64, len_bytes: usize) {
        let end = offset.checked_add(len_bytes as u64).expect("a place");
        assert!(end <= self.len_bytes, "{len_bytes} bytes at {offset} are outside of the memory");
    }
}

impl RamState {
    /// The number of the calling thread in the record.
    fn thread(&mut self) -> u8 {
        let id = thread::current().id();
        let known = self.threads.iter().position(|known| *known == id);
        let index = known.unwrap_or_else(|| {
            self.threads.push(id);
            self.threads.len() - 1
        });
        u8::try_from(index + usize::from(FIRST_THREAD)).expect("a daemon has fewer threads")
    }
}

impl Nvram for RamNvram {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len());
        self.state.lock().image.read(offset, buf);
        Ok(())
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len());
        let mut state = self.state.lock();
        let request = self.recorder.write(state.thread(), offset, Data::Bytes(data.into()));
        state.image.write(offset, data);
        self.recorder.end(request);
        Ok(())
    }

    fn persist(&self) -> Result<()> {
        let mut state = self.state.lock();
        let request = self.recorder.flush(state.thread());
        self.recorder.end(request);
        Ok(())
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        self.store(offset, &pieces.concat())?;
        // Other threads may store before this one fences.
        thread::yield_now();
        self.persist()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onejournal_testing::drive::record::Event;

    #[test]
    fn each_thread_has_its_own_stores_and_fences_in_the_record() {
        let recorder = Recorder::default();
        let memory = RamNvram::new(Image::zeroed(4096), recorder.clone());
        memory.store(3, &[1; 5]).unwrap();
        thread::scope(|scope| scope.spawn(|| memory.write_durable(8, &[&[2; 3], &[3; 2]])).join())
            .unwrap()
            .unwrap();
        memory.persist().unwrap();
        let begun = |event: &Event| match event {
            Event::Write { disk, offset, data, .. } => Some((*disk, *offset, data.len_bytes())),
            Event::Flush { disk, .. } => Some((*disk, 0, 0)),
            Event::End(_) | Event::Mark(_) => None,
        };
        let events: Vec<_> = recorder.take().iter().filter_map(begun).collect();
        assert_eq!(events, [(1, 3, 5), (2, 8, 5), (2, 0, 0), (1, 0, 0)]);
        let mut found = [0; 13];
        memory.read(0, &mut found).unwrap();
        assert_eq!(found, [0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3]);
    }
}
