//! xLog's original layout, to measure lanes against: one ring in shared memory for all clients, one logger
//! thread that serialises, a socket round trip for each record, a flush worker, one log file a client.
//!
//! ```text
//! ring: | head u32 | valid size u32 | records, around: length u32, client u32, number u64, crc u32, payload |
//! ```
//!
//! Head and valid size change together, in one store of eight bytes: a record counts from then on. Not a
//! product: it has no recovery and trusts its clients.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use device::{Access, Durability, MappedNvram, Nvram};

const RING_AT: u64 = 8;
const HEAD_BYTES: usize = 20;
/// Flushed when so much is valid.
const HIGH_BYTES: u64 = 1 << 20;

struct Ring {
    memory: MappedNvram,
    room_bytes: u64,
    /// Where the first record that was not flushed begins, and how many bytes are valid.
    state: Mutex<(u64, u64)>,
    changed: Condvar,
    number: Mutex<u64>,
}

impl Ring {
    fn store(&self, head: u64, size: u64) {
        let word = head | size << 32;
        self.memory.write_durable(0, &[&word.to_le_bytes()]).expect("store");
    }

    /// Around the end of the ring.
    fn copy_in(&self, at: u64, pieces: &[&[u8]]) {
        let mut at = at % self.room_bytes;
        for piece in pieces {
            let first = piece.len().min((self.room_bytes - at) as usize);
            self.memory.store(RING_AT + at, &piece[..first]).expect("store");
            self.memory.store(RING_AT, &piece[first..]).expect("store");
            at = (at + piece.len() as u64) % self.room_bytes;
        }
        self.memory.persist().expect("persist");
    }

    fn copy_out(&self, at: u64, buf: &mut [u8]) {
        let at = at % self.room_bytes;
        let first = buf.len().min((self.room_bytes - at) as usize);
        let (head, rest) = buf.split_at_mut(first);
        self.memory.read(RING_AT + at, head).expect("load");
        self.memory.read(RING_AT, rest).expect("load");
    }

    /// What the logger does for a record.
    fn log(&self, client: u32, payload: &[u8]) {
        let mut number = self.number.lock().expect("no panic");
        *number += 1;
        let len_bytes = (HEAD_BYTES + payload.len()) as u64;
        let mut state = self.state.lock().expect("no panic");
        while state.1 + len_bytes > self.room_bytes {
            state = self.changed.wait(state).expect("no panic");
        }
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&client.to_le_bytes());
        head[8..16].copy_from_slice(&number.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..16]), payload);
        head[16..].copy_from_slice(&crc.to_le_bytes());
        self.copy_in(state.0 + state.1, &[&head, payload]);
        state.1 += len_bytes;
        self.store(state.0, state.1);
        self.changed.notify_all();
    }
}

/// The service: one logger thread, one flush worker.
pub struct Xlog {
    ring: Arc<Ring>,
    is_ending: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Xlog {
    /// Serves `client_count` clients at `socket`; their log files are made in `directory`.
    pub fn start(ring: &Path, directory: &Path, socket: &Path, client_count: u32) -> Xlog {
        let room_bytes = 64 << 20;
        let memory = MappedNvram::create(ring, RING_AT + room_bytes, Some(Durability::Process))
            .expect("ring");
        debug_assert_eq!(memory.durability(), Durability::Process);
        let _ = Access::ReadWrite;
        let ring = Arc::new(Ring {
            memory,
            room_bytes,
            state: Mutex::new((0, 0)),
            changed: Condvar::new(),
            number: Mutex::new(0),
        });
        let listener = UnixListener::bind(socket).expect("socket");
        let logger = ring.clone();
        std::thread::spawn(move || serve(&logger, &listener, client_count));
        let files: Vec<File> = (0..client_count)
            .map(|client| {
                let path = directory.join(format!("client-{client}.log"));
                OpenOptions::new().create(true).truncate(true).write(true).open(path).expect("file")
            })
            .collect();
        let is_ending = Arc::new(AtomicBool::new(false));
        let (flushed, end) = (ring.clone(), is_ending.clone());
        let worker = Some(std::thread::spawn(move || flush(&flushed, &files, &end)));
        Xlog { ring, is_ending, worker }
    }

    /// Flushes the rest.
    pub fn stop(mut self) {
        self.is_ending.store(true, Ordering::Release);
        self.ring.changed.notify_all();
        self.worker.take().expect("it runs").join().expect("no panic");
    }
}

/// The logger: one thread for all clients.
fn serve(ring: &Ring, listener: &UnixListener, client_count: u32) {
    let mut clients: Vec<UnixStream> =
        (0..client_count).map(|_| listener.accept().expect("client").0).collect();
    let mut payload = Vec::new();
    loop {
        let mut wanted: Vec<_> = clients
            .iter()
            .map(|client| rustix::event::PollFd::new(client, rustix::event::PollFlags::IN))
            .collect();
        rustix::event::poll(&mut wanted, None).expect("poll");
        let ready: Vec<bool> = wanted.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (number, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let mut length = [0; 4];
            if clients[number].read_exact(&mut length).is_err() {
                return;
            }
            payload.resize(u32::from_le_bytes(length) as usize, 0);
            clients[number].read_exact(&mut payload).expect("payload");
            ring.log(number as u32, &payload);
            clients[number].write_all(&[1]).expect("answer");
        }
    }
}

/// The flush worker: brings records to their clients' files, one sync a file and round.
fn flush(ring: &Ring, files: &[File], is_ending: &AtomicBool) {
    let mut ends = vec![0; files.len()];
    loop {
        let (head, size) = {
            let mut state = ring.state.lock().expect("no panic");
            while state.1 < HIGH_BYTES && !is_ending.load(Ordering::Acquire) {
                state = ring.changed.wait(state).expect("no panic");
            }
            *state
        };
        if size == 0 {
            return;
        }
        let mut bytes = vec![0; size as usize];
        ring.copy_out(head, &mut bytes);
        let mut parts = vec![Vec::new(); files.len()];
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four"));
            let (len_bytes, client) = (HEAD_BYTES + word(0) as usize, word(4) as usize);
            parts[client].extend_from_slice(&rest[..len_bytes]);
            rest = &rest[len_bytes..];
        }
        for ((file, part), end) in files.iter().zip(&parts).zip(&mut ends) {
            if !part.is_empty() {
                file.write_all_at(part, *end).expect("write");
                file.sync_data().expect("sync");
                *end += part.len() as u64;
            }
        }
        let mut state = ring.state.lock().expect("no panic");
        state.0 = (state.0 + size) % ring.room_bytes;
        state.1 -= size;
        ring.store(state.0, state.1);
        ring.changed.notify_all();
    }
}

/// A client of the service.
pub struct XlogClient(UnixStream);

impl XlogClient {
    /// Connects.
    pub fn connect(socket: &Path) -> XlogClient {
        XlogClient(UnixStream::connect(socket).expect("connect"))
    }

    /// Returns when the record is in the ring.
    pub fn append(&mut self, payload: &[u8]) {
        let length = (payload.len() as u32).to_le_bytes();
        self.0.write_all(&[&length[..], payload].concat()).expect("request");
        self.0.read_exact(&mut [0]).expect("answer");
    }
}
