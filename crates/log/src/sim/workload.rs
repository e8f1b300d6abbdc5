//! Random operations between two power cuts of the machine.

use std::sync::Arc;
use std::time::Duration;

use device::Operation;
use fastrand::Rng;
use onejournal_testing::Fault;

use super::appended::{Appended, payload};
use super::host::{Machine, SimHost};
use super::model::{Model, Span, StreamModel};
use crate::engine::lane::Lane;
use crate::engine::recovery::recover_service;
use crate::engine::service::Service;
use crate::format::record::record_bytes;
use crate::host::{Host, StreamMeta};
use crate::{Lsn, Result};

pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A process that uses the service.
pub(super) struct Process {
    pub(super) host: Arc<SimHost>,
    pub(super) service: Service,
}

impl Process {
    /// Joins the service of the machine, which is recovered first if need be.
    pub(super) fn join(machine: &Arc<Machine>) -> Result<Process> {
        let host = machine.process();
        let service = Service::new(host.clone(), Duration::from_millis(200));
        if !machine.is_ready() {
            host.locked(&mut || recover_service(&service))?;
        }
        Ok(Process { host, service })
    }

    pub(super) fn open(&self, name: &str) -> Result<Option<Arc<Lane>>> {
        let name = name.parse()?;
        let streams = self.host.streams()?;
        match streams.into_iter().find(|(found, _)| *found == name) {
            Some((_, meta)) => self.service.lane(&name, &meta).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn make(&self, name: &str) -> Result<Arc<Lane>> {
        let name = name.parse()?;
        let meta =
            StreamMeta { id: 0, salt: fastrand::u64(..), uid: 0, gid: 0, mode: 0, quota_bytes: 0 };
        let meta = self.host.create_stream(&name, &meta)?;
        self.service.lane(&name, &meta)
    }
}

/// What a workload may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    /// Longest payload.
    pub(super) payload_bytes_max: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// All operations, which succeed.
    Anything,
    /// Operations may fail.
    Faults,
    /// Only one stream, and batches of records of one length. The bytes that one boot leaves then
    /// look like the bytes that the next boot writes.
    Narrow,
    /// A daemon's clients do all operations.
    Served,
    /// Records are put aside, as if another process was stopped while it drains them.
    Stops,
}

pub(super) struct Workload {
    pub(super) machine: Arc<Machine>,
    pub(super) process: Process,
    pub(super) model: Model,
    rng: Rng,
    mix: Mix,
    /// Whether writes and syncs fail, too, or only the creation of files.
    fails_for_good: bool,
}

impl Workload {
    pub(super) fn new(
        machine: Arc<Machine>,
        process: Process,
        model: Model,
        rng: Rng,
        mix: Mix,
    ) -> Workload {
        let mut rng = rng;
        let fails_for_good = rng.bool();
        Workload { machine, process, model, rng, mix, fails_for_good }
    }

    pub(super) fn run(&mut self, step_count: usize) {
        let has_faults = self.mix.kind == Kind::Faults;
        for _ in 0..step_count {
            let (mut name, mut step) = (NAMES[self.rng.usize(..NAMES.len())], self.rng.u8(..100));
            if self.mix.kind == Kind::Narrow {
                (name, step) = (NAMES[0], 45);
            }
            if has_faults {
                self.maybe_fail();
            }
            let done = self.step(name, step);
            assert!(done.is_ok() || has_faults, "step {step} on {name}: {done:?}");
        }
        if has_faults && !self.fails_for_good {
            let done = self.go_on_after_full_disk();
            assert!(done.is_ok(), "after a full disk: {done:?}");
        }
    }

    /// Sometimes makes a later operation fail. The disk may become full, and have space again
    /// later.
    fn maybe_fail(&mut self) {
        match self.rng.u8(..60) {
            0 if self.fails_for_good => {
                let operation =
                    *self.rng.choice(&[Operation::Write, Operation::Flush]).expect("two");
                let fault = Fault::once(operation, self.rng.u64(..4));
                self.machine.inject(self.rng.bool(), fault);
            }
            1..6 => {
                let room_bytes = self.rng.u64(..100 << 10);
                self.machine.files.set_capacity_bytes(self.machine.files.used_bytes() + room_bytes);
            }
            6..12 => self.machine.files.set_capacity_bytes(u64::MAX),
            _ => {}
        }
    }

    /// Checks that nothing was lost when the disk was full for a time.
    fn go_on_after_full_disk(&mut self) -> Result<()> {
        self.machine.files.set_capacity_bytes(u64::MAX);
        for name in NAMES {
            if let Some(lane) = self.lane(name)? {
                self.append(name, &lane, 1)?;
                self.sync(name, &lane)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, name: &str, step: u8) -> Result<()> {
        let Some(lane) = self.lane(name)? else { return self.make(name) };
        match step {
            0..40 => self.append(name, &lane, 1),
            40..46 => {
                let count = self.rng.usize(2..9);
                self.append(name, &lane, count)
            }
            46..80 => self.sync(name, &lane),
            80..88 => self.drain(name, &lane),
            88..93 => self.truncate(name, &lane),
            93..95 => {
                self.process.service.release(&lane);
                Ok(())
            }
            95..97 => self.other_process(),
            // A removal that failed leaves nothing that a model could say.
            97 if self.mix.kind != Kind::Faults => self.remove(name, &lane),
            _ => {
                self.process.service.release(&lane);
                self.drain(name, &lane)
            }
        }
    }

    /// The stream's lane, if the stream is there.
    fn lane(&mut self, name: &str) -> Result<Option<Arc<Lane>>> {
        if self.model.live(name).is_none() {
            return Ok(None);
        }
        let lane = self.process.open(name)?;
        Ok(Some(lane.expect("it was not removed")))
    }

    fn make(&mut self, name: &str) -> Result<()> {
        let begin = match self.model.half_made.contains(name) {
            true => 0,
            false => self.machine.now(),
        };
        let made = self.process.make(name);
        let end = if made.is_ok() { self.machine.now() } else { u64::MAX };
        if made.is_ok() || self.process.open(name).is_ok_and(|found| found.is_some()) {
            self.model.streams.push(StreamModel::new(name, Span { begin, end }));
        } else {
            self.model.half_made.insert(name.to_owned());
        }
        made.map(drop)
    }

    fn len_bytes(&mut self) -> usize {
        let most = self.mix.payload_bytes_max;
        if self.mix.kind == Kind::Narrow {
            return 40;
        }
        match self.rng.u8(..20) {
            0..8 => self.rng.usize(1..200),
            // Records of one length: the rest of one record may look like the next record.
            8..11 => 40,
            11..17 => self.rng.usize(1..5000),
            _ => self.rng.usize(1..=most),
        }
    }

    fn append(&mut self, name: &str, lane: &Arc<Lane>, count: usize) -> Result<()> {
        let room = self.process.service.sizes().pool_bytes / 2;
        let (mut payloads, mut numbers, mut total) = (Vec::new(), Vec::new(), 0);
        for index in 0..count as u64 {
            let len_bytes = self.len_bytes();
            total += record_bytes(len_bytes) as u64;
            if total > room {
                break;
            }
            numbers.push(self.model.next_number + index);
            payloads.push(payload(self.model.next_number + index, len_bytes));
        }
        self.model.next_number += count as u64;
        if payloads.is_empty() {
            return Ok(());
        }
        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let begun = self.machine.now();
        let service = &self.process.service;
        let last = service
            .with_writer(lane, |writer, allocator| writer.append_batch(allocator, &slices))?;
        let now = self.machine.now();
        let is_nvram = self.process.host.nvram().is_some();
        let stream = self.model.live(name).expect("it is open");
        let mut follows_durable = stream.least_end(u64::MAX) >= stream.end();
        for (payload, number) in payloads.iter().zip(numbers) {
            let lsn = stream.end();
            let end = lsn + record_bytes(payload.len()) as u64;
            stream.records.push(Appended {
                lsn,
                end,
                number,
                len_bytes: payload.len(),
                begun,
                follows_durable,
            });
            follows_durable = false;
        }
        assert_eq!(stream.records.last().map(|record| record.lsn), Some(last.0));
        if is_nvram {
            stream.acknowledged.push((stream.end(), now));
        }
        Ok(())
    }

    fn sync(&mut self, name: &str, lane: &Arc<Lane>) -> Result<()> {
        let Some(last) = self.model.live(name).and_then(|stream| stream.records.last()) else {
            return Ok(());
        };
        let last = last.lsn;
        if last >= lane.words.appended() {
            return Ok(());
        }
        let service = &self.process.service;
        match self.rng.u8(..3) {
            0 if self.mix.kind == Kind::Stops => service.sync_aside(lane)?,
            _ => service.sync(lane, Lsn(last))?,
        }
        self.acknowledge(name);
        if self.mix.kind == Kind::Stops && self.rng.u8(..4) == 0 {
            self.process.service.put_synced_aside(lane)?;
        }
        Ok(())
    }

    fn drain(&mut self, name: &str, lane: &Arc<Lane>) -> Result<()> {
        self.process.service.drain(lane)?;
        self.acknowledge(name);
        Ok(())
    }

    fn acknowledge(&mut self, name: &str) {
        let now = self.machine.now();
        let stream = self.model.live(name).expect("it is open");
        stream.acknowledged.push((stream.end(), now));
    }

    fn truncate(&mut self, name: &str, lane: &Arc<Lane>) -> Result<()> {
        let begin = self.machine.now();
        let stream = self.model.live(name).expect("it is open");
        let Some(record) = self.rng.choice(&stream.records) else { return Ok(()) };
        let head = if self.rng.u8(..8) == 0 { stream.end() } else { record.lsn };
        stream.heads.push((head, begin));
        self.process.service.truncate_before(lane, Lsn(head))
    }

    /// Ends the process without notice. Another process continues.
    fn other_process(&mut self) -> Result<()> {
        self.process.host.die();
        self.process = Process::join(&self.machine)?;
        Ok(())
    }

    fn remove(&mut self, name: &str, lane: &Arc<Lane>) -> Result<()> {
        let begin = self.machine.now();
        let removed = self.process.service.remove(lane);
        let end = if removed.is_ok() { self.machine.now() } else { u64::MAX };
        let stream = self.model.live(name).expect("it is open");
        stream.removed = Some(Span { begin, end });
        removed
    }
}
