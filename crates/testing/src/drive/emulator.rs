//! The disk as a whole: bytes, time and counters. It knows neither FUSE nor a clock.

use std::ops::Range;

use device::Operation;
use serde::Serialize;

use crate::drive::control::Command;
use crate::drive::counters::{Counters, Region};
use crate::drive::disk::Disk;
use crate::drive::model::{Direction, Model};
use crate::drive::parameters::Parameters;
use crate::drive::record::{Data, Recorder};
use crate::drive::trace::Trace;

/// The most regions that are counted.
const REGION_COUNT_MAX: usize = 64;

/// A write or flush that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// When it is to be answered.
    pub done_ns: u64,
    /// Its number in the record, for [`Emulator::ended`].
    pub recorded: Option<u64>,
}

/// An emulated disk. Operations return the time at which they are done, in nanoseconds of the
/// caller's clock.
pub struct Emulator {
    parameters: Parameters,
    disk: Disk,
    model: Model,
    /// Counts, which the service adds to.
    pub(crate) counters: Counters,
    trace: Trace,
    recorder: Option<(Recorder, u8)>,
    is_off: bool,
    /// What fails although there is power.
    failing: Option<Operation>,
    is_held: bool,
    owner: u32,
    saved: Option<Vec<u8>>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    counters: &'a Counters,
    unflushed_blocks: usize,
    size_bytes: u64,
    parameters: &'a Parameters,
}

impl Emulator {
    /// A disk with the costs of `parameters`.
    pub fn new(parameters: Parameters, mut disk: Disk) -> Emulator {
        disk.set_volatile(parameters.volatile_cache);
        let (model, counters, trace) = Default::default();
        let (recorder, saved) = (None, None);
        Emulator {
            parameters,
            disk,
            model,
            counters,
            trace,
            recorder,
            is_off: false,
            failing: None,
            is_held: false,
            owner: 0,
            saved,
        }
    }

    /// From now on, adds all requests to a record, as disk number `disk`.
    pub fn record(&mut self, recorder: Recorder, disk: u8) {
        self.recorder = Some((recorder, disk));
    }

    /// Sets the owner of the file `disk`; it is root otherwise.
    pub fn set_owner(&mut self, owner: u32) {
        self.owner = owner;
    }

    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether this operation fails: it is a failing one, or nothing has power.
    pub fn fails(&self, operation: Operation) -> bool {
        self.is_off || self.failing == Some(operation)
    }

    /// Whether answers wait until a command releases them.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    /// How long before an answer is due the clock has to be polled.
    pub fn spin_ns(&self) -> u64 {
        (self.parameters.spin_us * 1e3) as u64
    }

    /// The present content of the part of these bytes that is on the disk.
    pub fn bytes(&self, span: Range<u64>) -> &[u8] {
        self.disk.read(span)
    }

    /// A read. Its bytes are taken with [`Emulator::bytes`] when it is done.
    pub fn read(&mut self, now_ns: u64, span: Range<u64>) -> u64 {
        self.counters.reads += 1;
        self.counters.read_bytes += span.end - span.start;
        self.trace.add(now_ns, 'R', &span);
        self.model.transfer(&self.parameters, now_ns, Direction::Read, span)
    }

    /// A write; `None` if it is not on the disk.
    pub fn write(&mut self, now_ns: u64, offset: u64, data: &[u8]) -> Option<Begun> {
        let span = offset..offset.checked_add(data.len() as u64)?;
        if !self.disk.has(&span) {
            return None;
        }
        self.counters.count_write(&span, data);
        self.trace.add(now_ns, 'W', &span);
        self.disk.write(offset, data);
        let recorded = self
            .recorder
            .as_ref()
            .map(|(recorder, disk)| recorder.write(*disk, offset, Data::Bytes(data.into())));
        let done_ns = self.model.transfer(&self.parameters, now_ns, Direction::Write, span);
        Some(Begun { done_ns, recorded })
    }

    /// Records that the write or flush with this number is answered next.
    pub fn ended(&self, recorded: u64) {
        if let Some((recorder, _)) = &self.recorder {
            recorder.end(recorded);
        }
    }

    /// A flush of everything that was written before it.
    pub fn flush(&mut self, now_ns: u64) -> Begun {
        let recorded = self.recorder.as_ref().map(|(recorder, disk)| recorder.flush(*disk));
        let extents = self.disk.flush();
        self.counters.flushes += 1;
        self.counters.empty_flushes += u64::from(extents.is_empty());
        self.counters.flushed_extents += extents.len() as u64;
        self.trace.add(now_ns, 'F', &(0..0));
        let done_ns = self.model.flush(&self.parameters, now_ns, &extents);
        self.counters.flush_us += (done_ns - now_ns) as f64 / 1e3;
        Begun { done_ns, recorded }
    }

    /// Zeroes bytes, which takes no time; `None` if they are not on the disk.
    pub fn discard(&mut self, now_ns: u64, span: Range<u64>) -> Option<()> {
        if !self.disk.has(&span) {
            return None;
        }
        self.counters.discards += 1;
        self.counters.discard_bytes += span.end - span.start;
        self.trace.add(now_ns, 'D', &span);
        if let Some((recorder, disk)) = &self.recorder {
            let zeros = Data::Zeros(span.end - span.start);
            recorder.end(recorder.write(*disk, span.start, zeros));
        }
        self.disk.discard(span);
        Some(())
    }

    /// Runs the command of a text; `None` if it is not a command.
    pub fn obey(&mut self, text: &str) -> Option<()> {
        match text.parse().ok()? {
            Command::Reset => self.counters.reset(),
            Command::Set(list) => {
                self.parameters.apply(&list).ok()?;
                self.disk.set_volatile(self.parameters.volatile_cache);
            }
            Command::Trace(true) => self.trace.start(),
            Command::Trace(false) => self.trace.stop(),
            Command::Region { .. } if self.counters.regions.len() >= REGION_COUNT_MAX => {
                return None;
            }
            Command::Region { name, start, end } => {
                self.counters.regions.insert(name, Region::new(start, end));
            }
            Command::NoRegions => self.counters.regions.clear(),
            Command::Power(is_on) => self.is_off = !is_on,
            Command::Fail(failing) => self.failing = failing,
            Command::Hold(is_held) => self.is_held = is_held,
            Command::Save => self.saved = Some(self.disk.copy()),
            Command::Restore => self.disk.restore(self.saved.as_ref()?),
            Command::Crash { survival, seed } => {
                self.counters.lost_sectors += self.disk.crash(survival, seed);
                self.counters.crashes += 1;
            }
        }
        Some(())
    }

    /// The content of `counters`.
    pub fn report(&self) -> String {
        let report = Report {
            counters: &self.counters,
            unflushed_blocks: self.disk.unflushed_count(),
            size_bytes: self.size_bytes(),
            parameters: &self.parameters,
        };
        serde_json::to_string_pretty(&report).expect("numbers and names") + "\n"
    }

    /// The content of `trace`.
    pub fn trace_text(&self) -> String {
        self.trace.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emulator() -> Emulator {
        Emulator::new(Parameters::preset("ssd311").unwrap(), Disk::new(1 << 20))
    }

    fn value(emulator: &Emulator, path: &str) -> f64 {
        let report: serde_json::Value = serde_json::from_str(&emulator.report()).unwrap();
        report.pointer(path).unwrap_or_else(|| panic!("no {path}")).as_f64().unwrap()
    }

    #[test]
    fn operations_are_counted_also_by_region_and_reset() {
        let mut disk = emulator();
        disk.obey("region journal 4096 8192").unwrap();
        assert_eq!(disk.write(0, 0, &[1; 4096]).unwrap().done_ns, 89_010);
        disk.write(0, 4096, &[1; 8192]).unwrap();
        disk.read(0, 0..512);
        disk.flush(1_000_000);
        disk.flush(2_000_000);
        disk.discard(0, 0..4096).unwrap();
        for (path, expected) in [
            ("/writes", 2.0),
            ("/write_bytes", 12288.0),
            ("/reads", 1.0),
            ("/read_bytes", 512.0),
            ("/flushes", 2.0),
            ("/empty_flushes", 1.0),
            ("/flushed_extents", 1.0),
            ("/flush_us", 275.0),
            ("/discard_bytes", 4096.0),
            ("/unflushed_blocks", 1.0),
            ("/regions/journal/writes", 1.0),
            ("/regions/journal/write_bytes", 8192.0),
            ("/parameters/flush_us", 250.0),
        ] {
            assert_eq!(value(&disk, path), expected, "{path}");
        }
        disk.obey("reset").unwrap();
        assert_eq!((value(&disk, "/writes"), value(&disk, "/regions/journal/writes")), (0.0, 0.0));
        assert_eq!(value(&disk, "/regions/journal/end"), 8192.0);
    }

    #[test]
    fn blocks_of_jbd2_are_counted_apart_in_a_region() {
        let mut disk = emulator();
        disk.obey("region journal 4096 65536").unwrap();
        let block = |first: &[u8]| [first, &vec![1; 4096 - first.len()]].concat();
        let own = block(&[0xc0, 0x3b, 0x39, 0x98]);
        let logged = [block(&[]), block(&[0, 0xc0, 0x3b, 0x39, 0x98])].concat();
        disk.write(0, 0, &own).unwrap();
        disk.write(0, 4096, &[own.clone(), logged, own.clone()].concat()).unwrap();
        disk.write(0, 20480, &own[..512]).unwrap();
        let region = |name: &str| value(&disk, &format!("/regions/journal/{name}"));
        assert_eq!((region("write_bytes"), region("jbd2_bytes")), (16896.0, 8192.0));
    }

    #[test]
    fn a_request_outside_the_disk_is_refused_and_changes_nothing() {
        let mut disk = emulator();
        assert_eq!(disk.write(0, (1 << 20) - 1, &[1; 2]), None);
        assert_eq!(disk.write(0, u64::MAX, &[1; 2]), None);
        assert_eq!(disk.discard(0, 0..u64::MAX), None);
        assert_eq!(disk.obey("explode"), None);
        assert_eq!((value(&disk, "/writes"), value(&disk, "/unflushed_blocks")), (0.0, 0.0));
    }

    #[test]
    fn saved_content_is_restored_and_survives_a_crash() {
        let mut disk = emulator();
        assert_eq!(disk.obey("restore"), None, "nothing was saved");
        disk.write(0, 0, &[1; 1024]).unwrap();
        disk.obey("save").unwrap();
        disk.write(0, 512, &[2; 1024]).unwrap();
        disk.obey("restore").unwrap();
        disk.obey("crash 0 1").unwrap();
        assert_eq!(disk.bytes(0..2048), [[1; 1024], [0; 1024]].concat());
    }

    #[test]
    fn without_power_everything_fails_and_otherwise_what_was_named() {
        let mut disk = emulator();
        let mut failing = |command| {
            disk.obey(command).unwrap();
            [Operation::Read, Operation::Write, Operation::Flush].map(|it| disk.fails(it))
        };
        assert_eq!(failing("power off"), [true; 3]);
        assert_eq!(failing("power on"), [false; 3]);
        assert_eq!(failing("fail reads"), [true, false, false]);
        assert_eq!(failing("fail writes"), [false, true, false]);
        assert_eq!(failing("fail flushes"), [false, false, true]);
        assert_eq!(failing("fail nothing"), [false; 3]);
    }

    #[test]
    fn a_trace_shows_each_operation_and_a_crash_is_counted() {
        let mut disk = emulator();
        disk.write(5_000, 0, &[1; 512]).unwrap();
        disk.obey("trace on").unwrap();
        disk.write(7_000, 512, &[1; 512]).unwrap();
        disk.obey("crash 0 1").unwrap();
        disk.read(9_000, 0..512);
        disk.obey("trace off").unwrap();
        disk.flush(11_000);
        assert_eq!(disk.trace_text(), "7 W 512 512\n9 R 0 512\n");
        assert_eq!((value(&disk, "/crashes"), value(&disk, "/lost_sectors")), (1.0, 2.0));
        assert_eq!(disk.bytes(0..1024), [0; 1024]);
    }
}
