//! Logger and flush worker around one ring.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::RingSize;
use super::layout::{Extent, HEAD_BYTES, Layout, by_client, record_head};
use crate::error::{Error, Result};

/// The state that logger and worker share.
struct RingState {
    extent: Extent,
    number: u64,
    is_ending: bool,
    /// The error that ended the worker early.
    failure: Option<String>,
}

struct Ring {
    layout: Layout,
    high_bytes: u32,
    state: Mutex<RingState>,
    changed: Condvar,
}

/// A ring with its service.
pub struct Service {
    ring: Arc<Ring>,
    worker: JoinHandle<()>,
}

impl Service {
    /// Makes the ring, and a log file for each client in `dir`.
    pub fn start(path: &Path, dir: &Path, size: RingSize, client_count: u32) -> Result<Service> {
        let layout = Layout::create(path, size.ring_bytes).map_err(failed)?;
        let files = (0..client_count)
            .map(|client| {
                let path = dir.join(format!("client-{client}.log"));
                File::create(&path).map_err(Error::at(&path))
            })
            .collect::<Result<Vec<_>>>()?;
        let state =
            RingState { extent: Extent::default(), number: 0, is_ending: false, failure: None };
        let ring = Arc::new(Ring {
            layout,
            high_bytes: size.high_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let worked_on = ring.clone();
        let worker = std::thread::spawn(move || {
            if let Err(error) = worked_on.flush(&files) {
                worked_on.lock().failure = Some(error.to_string());
                worked_on.changed.notify_all();
            }
        });
        Ok(Service { ring, worker })
    }

    /// Returns when the record is in the ring. Waits while the ring is full.
    pub fn log(&self, client: u32, payload: &[u8]) -> Result<()> {
        let ring = &self.ring;
        let len_bytes = (HEAD_BYTES + payload.len()) as u64;
        let mut state = ring.lock();
        while u64::from(state.extent.valid_bytes) + len_bytes > u64::from(ring.layout.room_bytes())
        {
            if let Some(failure) = &state.failure {
                return Err(Error::other(failure.clone()));
            }
            state = ring.changed.wait(state).expect("no panic");
        }
        state.number += 1;
        let head = record_head(client, state.number, payload);
        state.extent = ring.layout.put(state.extent, &head, payload).map_err(failed)?;
        ring.layout.publish(state.extent).map_err(failed)?;
        if state.extent.valid_bytes >= ring.high_bytes {
            ring.changed.notify_all();
        }
        Ok(())
    }

    /// Flushes the rest.
    pub fn stop(self) -> Result<()> {
        self.ring.lock().is_ending = true;
        self.ring.changed.notify_all();
        self.worker.join().expect("no panic");
        let failure = self.ring.lock().failure.take();
        failure.map_or(Ok(()), |failure| Err(Error::other(failure)))
    }
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().expect("no panic")
    }

    /// The records to flush; none at the end.
    fn wanted(&self) -> Extent {
        let mut state = self.lock();
        while state.extent.valid_bytes < self.high_bytes && !state.is_ending {
            state = self.changed.wait(state).expect("no panic");
        }
        state.extent
    }

    /// The flush worker: brings records to their clients' files, with one sync for each file in
    /// each round.
    fn flush(&self, files: &[File]) -> Result<()> {
        let mut ends = vec![0; files.len()];
        loop {
            let extent = self.wanted();
            if extent.valid_bytes == 0 {
                return Ok(());
            }
            let parts = by_client(&self.layout.get(extent).map_err(failed)?, files.len());
            for ((file, part), end) in files.iter().zip(&parts).zip(&mut ends) {
                if !part.is_empty() {
                    let written = file.write_all_at(part, *end).and_then(|()| file.sync_data());
                    written.map_err(Error::io("a client's log file"))?;
                    *end += part.len() as u64;
                }
            }
            let mut state = self.lock();
            state.extent = self.layout.without(state.extent, extent.valid_bytes);
            self.layout.publish(state.extent).map_err(failed)?;
            self.changed.notify_all();
        }
    }
}

fn failed(error: device::DeviceError) -> Error {
    Error::other(format!("the ring: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_was_logged_reaches_the_files_in_order() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        // Small, so that the logger waits for the worker.
        let size = RingSize { ring_bytes: 1000, high_bytes: 300 };
        let service = Service::start(&dir.path().join("ring"), dir.path(), size, 2).unwrap();
        let mut expected = [Vec::new(), Vec::new()];
        for number in 1..=200u64 {
            let (client, payload) = (number % 2, number.to_string().repeat(20));
            service.log(client as u32, payload.as_bytes()).unwrap();
            expected[client as usize].extend(record_head(
                client as u32,
                number,
                payload.as_bytes(),
            ));
            expected[client as usize].extend(payload.as_bytes());
        }
        service.stop().unwrap();
        for (client, expected) in expected.iter().enumerate() {
            let found = std::fs::read(dir.path().join(format!("client-{client}.log"))).unwrap();
            assert!(found == *expected, "client {client}");
        }
    }
}
