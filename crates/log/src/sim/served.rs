//! Random operations of clients and their daemon between two power cuts of the machine: any of them
//! may die at any step.

use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;

use super::appended::{Appended, payload};
use super::check::read_all;
use super::client::Client;
use super::daemon::{DAEMON, Daemon};
use super::host::Machine;
use super::model::{Model, Span, StreamModel};
use super::workload::NAMES;
use crate::format::record::record_bytes;
use crate::wire::protocol::{Kind, Request};
use crate::{LogError, Lsn};
use fault::crash::{self, ProcessId};

const CLIENT_COUNT: usize = 3;

type Done = Result<(), String>;

/// The processes, and what they did.
pub(super) struct Served {
    machine: Arc<Machine>,
    daemon: Rc<Daemon>,
    clients: Vec<Client>,
    /// Who has the lease of each of [`NAMES`].
    holders: [Option<usize>; NAMES.len()],
    pub(super) model: Model,
    rng: Rng,
    payload_bytes_max: usize,
}

fn text(error: LogError) -> String {
    error.to_string()
}

impl Served {
    pub(super) fn new(
        machine: Arc<Machine>,
        model: Model,
        rng: Rng,
        payload_bytes_max: usize,
    ) -> Served {
        let daemon = Rc::new(Daemon::new(machine.clone()));
        let client = |n| Client::new(ProcessId(n + 1), daemon.clone(), machine.settings.clone());
        let clients = (0..CLIENT_COUNT).map(client).collect();
        let holders = [None; NAMES.len()];
        Served { machine, daemon, clients, holders, model, rng, payload_bytes_max }
    }

    /// Does this many steps. Then, as a rule, ends all processes in order.
    pub(super) fn run(&mut self, step_count: usize) -> Done {
        for number in 0..step_count {
            let (client, index) = (self.rng.usize(..CLIENT_COUNT), self.rng.usize(..NAMES.len()));
            let step = self.rng.u8(..100);
            self.choose_crash(client);
            let done = self.step(client, index, step);
            crash::crash_after(None);
            let name = NAMES[index];
            done.map_err(|e| format!("step {number}, {step} of client {client} on {name}: {e}"))?;
        }
        match self.rng.u8(..4) {
            0 => Ok(()),
            _ => self.finish().map_err(|e| format!("in the end: {e}")),
        }
    }

    /// Sometimes makes a process die during the next step.
    fn choose_crash(&mut self, client: usize) {
        let most = 1 << self.rng.u8(..11);
        let steps = self.rng.u64(..most);
        crash::crash_after(match self.rng.u8(..8) {
            0 | 1 => Some((DAEMON, steps)),
            2 => Some((self.clients[client].name, steps)),
            _ => None,
        });
    }

    fn step(&mut self, client: usize, index: usize, step: u8) -> Done {
        match step {
            0..42 => {
                let count = if step < 6 { self.rng.usize(2..9) } else { 1 };
                self.append(client, index, count)
            }
            42..58 => self.sync(client, index),
            58..64 => self.flush(client, index),
            64..72 => self.read(client, index),
            72..76 => self.truncate(client, index),
            76..80 => self.release(client, index),
            80..83 => {
                self.clients[client].die();
                self.forget(client);
                Ok(())
            }
            83..86 => {
                self.daemon.kill();
                Ok(())
            }
            86..88 => {
                // An upgrade.
                self.daemon
                    .run(|handler| handler.bring_home())
                    .map_err(text)?
                    .transpose()
                    .map_err(text)?;
                self.daemon.kill();
                Ok(())
            }
            88..94 => self.background(),
            94 | 95 => self.remove(client, index),
            _ => self.acquire(client, index).map(drop),
        }
    }

    /// The daemon's work between requests.
    fn background(&mut self) -> Done {
        self.daemon
            .run(|handler| {
                handler.tend();
                handler.service.sweep();
            })
            .map_err(text)?;
        Ok(())
    }

    /// Removes the client and its leases.
    fn forget(&mut self, client: usize) {
        for holder in &mut self.holders {
            if *holder == Some(client) {
                *holder = None;
            }
        }
    }

    /// Runs `f` as the client; `None`: it died.
    fn live<T>(
        &mut self,
        client: usize,
        f: impl FnOnce(&mut Client) -> crate::Result<T>,
    ) -> Result<Option<crate::Result<T>>, String> {
        let done = self.clients[client].live(f);
        if done.is_none() {
            self.forget(client);
        }
        Ok(done)
    }

    /// Makes the stream if there is none; `None`: the client died.
    fn open(&mut self, client: usize, index: usize) -> Result<Option<u32>, String> {
        let (name, begin) = (NAMES[index], self.machine.now());
        let id = self.live(client, |client| client.open(name))?.transpose().map_err(text)?;
        let is_there = self.daemon.has_stream(name).map_err(text)?;
        if is_there && self.model.live(name).is_none() {
            let made = Span { begin, end: self.machine.now() };
            self.model.streams.push(StreamModel::new(name, made));
        }
        Ok(id)
    }

    /// Whether the client has the lease now.
    fn acquire(&mut self, client: usize, index: usize) -> Result<bool, String> {
        if self.holders[index] == Some(client) {
            return Ok(true);
        }
        let name = NAMES[index];
        if self.open(client, index)?.is_none() {
            return Ok(false);
        }
        let is_free = self.holders[index].is_none();
        match self.live(client, |client| client.acquire(name))? {
            None => Ok(false),
            Some(Err(LogError::Busy(_))) if !is_free => Ok(false),
            Some(Err(e)) => Err(text(e)),
            Some(Ok(_)) if !is_free => Err("a second client got the lease".into()),
            Some(Ok(position)) => {
                self.holders[index] = Some(client);
                let now = self.machine.now();
                let stream = self.model.live(name).expect("it was opened");
                stream.resolve_doubt(position.0, now)?;
                // Whatever was there was drained.
                stream.acknowledged.push((position.0, now));
                Ok(true)
            }
        }
    }

    fn append(&mut self, client: usize, index: usize, count: usize) -> Done {
        if !self.acquire(client, index)? {
            return Ok(());
        }
        let name = NAMES[index];
        let (mut payloads, mut room) = (Vec::new(), self.machine.settings.pool_bytes() / 2);
        let begun = self.machine.now();
        let first = self.model.next_number;
        self.model.next_number += count as u64;
        let stream = self.model.live(name).expect("it has a lease");
        let before = stream.end();
        let is_nvram = self.machine.settings.nvram.is_some();
        let mut follows_durable = is_nvram || self.clients[client].synced(name) >= before;
        for number in (first..).take(count) {
            let len_bytes = match self.rng.u8(..20) {
                0..8 => self.rng.usize(1..200),
                8..11 => 40,
                11..17 => self.rng.usize(1..5000),
                _ => self.rng.usize(1..=self.payload_bytes_max),
            };
            let Some(left) = room.checked_sub(record_bytes(len_bytes) as u64) else { break };
            room = left;
            let lsn = stream.end();
            let end = lsn + record_bytes(len_bytes) as u64;
            let record = Appended { lsn, end, number, len_bytes, begun, follows_durable };
            stream.records.push(record);
            payloads.push(payload(number, len_bytes));
            follows_durable = false;
        }
        stream.doubt = Some(before);
        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let appended = self.live(client, |client| client.append(name, &slices))?;
        let now = self.machine.now();
        let stream = self.model.live(name).expect("it has a lease");
        match appended {
            // The client died. The next writer finds out whether the records are there.
            None => {}
            Some(Ok(last)) => {
                stream.doubt = None;
                if stream.records.last().map(|record| record.lsn) != Some(last.0) {
                    return Err(format!("the record is at {last}"));
                }
                if is_nvram {
                    stream.acknowledged.push((stream.end(), now));
                }
            }
            Some(Err(LogError::Full { .. })) => {
                stream.doubt = None;
                stream.records.truncate(stream.records.len() - slices.len());
            }
            Some(Err(e)) => return Err(text(e)),
        }
        Ok(())
    }

    /// The stream, if it is there, and where it certainly ends.
    fn known(&mut self, client: usize, index: usize) -> Result<Option<(u32, u64)>, String> {
        if self.model.live(NAMES[index]).is_none() {
            return Ok(None);
        }
        let Some(id) = self.open(client, index)? else { return Ok(None) };
        let stream = self.model.live(NAMES[index]).expect("it is there");
        Ok(Some((id, stream.doubt.unwrap_or(stream.end()))))
    }

    fn acknowledge(&mut self, index: usize, end: u64) {
        let now = self.machine.now();
        let stream = self.model.live(NAMES[index]).expect("it is there");
        stream.acknowledged.push((end, now));
    }

    fn sync(&mut self, client: usize, index: usize) -> Done {
        let Some((stream, end)) = self.known(client, index)? else { return Ok(()) };
        let records = &self.model.live(NAMES[index]).expect("it is there").records;
        let Some(last) = records.iter().rev().find(|record| record.end <= end) else {
            return Ok(());
        };
        let at = Some(last.lsn);
        if let Some(done) = self.live(client, |client| client.sync(NAMES[index], stream, at))? {
            done.map_err(text)?;
            self.acknowledge(index, end);
        }
        Ok(())
    }

    fn flush(&mut self, client: usize, index: usize) -> Done {
        let Some((stream, end)) = self.known(client, index)? else { return Ok(()) };
        if let Some(done) = self.live(client, |client| client.sync(NAMES[index], stream, None))? {
            done.map_err(text)?;
            self.acknowledge(index, end);
        }
        Ok(())
    }

    fn read(&mut self, client: usize, index: usize) -> Done {
        let Some((stream, _)) = self.known(client, index)? else { return Ok(()) };
        let request = Request { stream, ..Request::new(Kind::Stat) };
        let Some(stat) = self.live(client, |client| client.ask(&request))? else { return Ok(()) };
        let head = Lsn(stat.map_err(text)?.reply.values[0]);
        let Some(records) = self.live(client, |client| client.read(stream, head))? else {
            return Ok(());
        };
        let records = records.map_err(text)?;
        let model = self.model.live(NAMES[index]).expect("it is there");
        let mut end = head.0;
        for record in records {
            let known = model.record(record.lsn.0, &record.payload, u64::MAX);
            let known = known.filter(|known| known.lsn == end);
            end = known.ok_or_else(|| format!("read {} after {end}", record.lsn))?.end;
        }
        let least = model.least_end(u64::MAX);
        if end < least { Err(format!("read up to {end}, acknowledged {least}")) } else { Ok(()) }
    }

    fn truncate(&mut self, client: usize, index: usize) -> Done {
        let Some((stream, end)) = self.known(client, index)? else { return Ok(()) };
        let begin = self.machine.now();
        let model = self.model.live(NAMES[index]).expect("it is there");
        let known = model.records.partition_point(|record| record.end <= end);
        let Some(record) = self.rng.choice(&model.records[..known]) else { return Ok(()) };
        let head = if self.rng.u8(..8) == 0 { end } else { record.lsn };
        let request = Request { stream, at: head, ..Request::new(Kind::Truncate) };
        // The client may die after it.
        model.heads.push((head, begin));
        let done = self.live(client, |client| client.ask(&request))?;
        done.transpose().map_err(text)?;
        Ok(())
    }

    fn release(&mut self, client: usize, index: usize) -> Done {
        if self.holders[index] == Some(client) {
            self.holders[index] = None;
            let done = self.live(client, |client| client.release(NAMES[index]))?;
            done.transpose().map_err(text)?;
        }
        Ok(())
    }

    fn remove(&mut self, client: usize, index: usize) -> Done {
        let name = NAMES[index];
        if self.model.live(name).is_none() {
            return Ok(());
        }
        let begin = self.machine.now();
        let request = Request { name: name.into(), ..Request::new(Kind::Remove) };
        let done = self.live(client, |client| client.ask(&request))?;
        let has_holder = self.holders[index].is_some();
        match done.transpose() {
            Err(LogError::Busy(_)) if has_holder => return Ok(()),
            Err(e) => return Err(text(e)),
            Ok(_) => {}
        }
        if !self.daemon.has_stream(name).map_err(text)? {
            if has_holder {
                return Err("it was removed while a client has the lease".into());
            }
            let removed = Some(Span { begin, end: self.machine.now() });
            self.model.live(name).expect("it was there").removed = removed;
        }
        Ok(())
    }

    /// Ends all clients, lets the daemon find that out, and checks that everything is as expected.
    fn finish(&mut self) -> Done {
        for client in 0..CLIENT_COUNT {
            self.clients[client].die();
            self.forget(client);
        }
        self.background()?;
        self.daemon.run(|handler| handler.bring_home()).map_err(text)?.transpose().map_err(text)?;
        self.background()?;
        let now = self.machine.now();
        for (index, name) in NAMES.iter().enumerate() {
            let Some(stream) = self.model.live(name) else { continue };
            let stream_name = name.parse().expect("a name");
            let found = self.daemon.run(|handler| {
                let meta = handler.service.host.stream(&stream_name).map_err(text)?;
                let lane = handler.service.lane(&stream_name, &meta.ok_or("it is gone")?);
                let lane = lane.map_err(text)?;
                Ok::<_, String>((read_all(&lane)?, lane.words.appended()))
            });
            let (found, end) = found.map_err(text)?.expect("no process crashes")?;
            stream.resolve_doubt(end, now)?;
            let first = stream.records.partition_point(|record| record.lsn < found.head);
            let known = &stream.records[first..];
            if found.count() != known.len() || !known.iter().all(|record| found.has(record)) {
                return Err(format!("stream {name}: not the records that were appended"));
            }
            self.acknowledge(index, end);
        }
        let allocated =
            self.daemon.run(|handler| handler.service.allocated_count()).map_err(text)?;
        let words = self.machine.words_count();
        match (allocated, words) {
            (Some(0), 0) => Ok(()),
            left => Err(format!("chunks and words of clients that are left over: {left:?}")),
        }
    }
}
