//! Failing media: what the file system must report then, and what must be left.
//!
//! After a failed write or flush, the operation that needed it reports an error. From then on the
//! volume accepts no change and acknowledges nothing, and a power cut at that moment leaves
//! everything that was acknowledged before. After a failed read, only that operation fails. If a
//! bit is flipped in a journal record with another record after it, the volume does not open, and
//! nothing is written to it.

use std::sync::Arc;

use device::Operation;
use ext4::{Error, OpenOptions, Volume};
use journal::{JournalError, Space};
use onejournal_testing::{Fault, Image, SimDevice, Survival};

use crate::case::Case;
use crate::format::{Formatted, formatted};
use crate::fsck::Fsck;
use crate::history::History;
use crate::machine::Images;
use crate::op::Op;
use crate::recording::{Stage, record, sector_bytes};
use crate::recover::{no_panic, read_back, recover};
use crate::session::{Session, Setup};
use crate::tree::Interner;

/// When a fault struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Struck {
    /// Never: the run had fewer of these operations.
    Never,
    /// While the volume was opened, used or closed. All checks passed.
    Handled,
}

/// Makes the run's `skip_count`th write, flush or read fail, and checks what follows.
pub fn check_fault(
    case: Case,
    operation: Operation,
    skip_count: u64,
    fsck: &mut Fsck,
) -> Result<Struck, String> {
    let formatted = formatted(case.shape())?;
    let device = Arc::new(SimDevice::from_image(formatted.image.clone(), sector_bytes(&case)));
    device.set_seed(case.seed ^ skip_count);
    let forever = operation != Operation::Read && skip_count.is_multiple_of(2);
    device.inject(Fault { operation, skip_count, forever });
    let mut run = FaultRun {
        case,
        setup: Stage::sound().setup(&case),
        history: History::new(&case),
        device,
        is_read: operation == Operation::Read,
    };
    let acked = match no_panic("the run", || run.until_it_fails())? {
        None => return Ok(Struck::Never),
        Some(acked) => acked,
    };
    run.check_crashes(acked, fsck)?;
    Ok(Struck::Handled)
}

struct FaultRun {
    case: Case,
    setup: Setup,
    history: History,
    device: Arc<SimDevice>,
    is_read: bool,
}

impl FaultRun {
    /// Runs until an operation fails. Returns how many operations had returned; `None` if none
    /// fails.
    fn until_it_fails(&mut self) -> Result<Option<usize>, String> {
        let opened = Session::open(self.device.clone(), self.setup.clone());
        let mut session = match opened {
            Ok(session) => session,
            Err(Error::Journal(_)) => return Ok(Some(0)),
            Err(error) => return Err(format!("a failed device gives '{error}'")),
        };
        for op in self.case.workload.ops(self.case.seed, self.case.op_count) {
            let acked = self.history.len();
            if let Some(error) = self.history.step(&mut session, &op)? {
                if !matches!(op, Op::Remount | Op::Restart) {
                    self.check_after(&mut session).map_err(|e| format!("{op}: {error}; {e}"))?;
                }
                return Ok(Some(acked));
            }
        }
        match session.close() {
            Ok(()) => Ok(None),
            Err(Error::Journal(_)) => Ok(Some(self.history.len())),
            Err(error) => Err(format!("closing on a failed device gives '{error}'")),
        }
    }

    /// Checks what a volume reports after the medium has failed. The fault itself may be over.
    fn check_after(&self, session: &mut Session) -> Result<(), String> {
        self.device.clear_faults();
        if self.is_read {
            return session
                .apply(&Op::Sync)
                .map(drop)
                .map_err(|e| format!("a failed read is remembered: sync says '{e}'"));
        }
        if !session.volume().is_read_only() {
            return Err("the volume did not turn read-only".into());
        }
        let change = Op::Create { path: "after-the-fault".into(), mode: 0o600 };
        for op in [change, Op::Sync] {
            if session.apply(&op).is_ok() {
                return Err(format!("then {op} succeeds"));
            }
        }
        Ok(())
    }

    fn check_crashes(&self, acked: usize, fsck: &mut Fsck) -> Result<(), String> {
        let randoms = (0..3).map(|n| Survival::Random(self.case.seed ^ n));
        for survival in Survival::EXTREMES.into_iter().chain(randoms) {
            let crashed = self.device.crash(survival);
            self.check_crash(crashed, acked, fsck)
                .map_err(|e| format!("power cut after the fault, {survival:?} survives: {e}"))?;
        }
        Ok(())
    }

    fn check_crash(&self, crashed: Image, acked: usize, fsck: &mut Fsck) -> Result<(), String> {
        let sector_bytes = sector_bytes(&self.case);
        let recovered = recover(&Images::whole(crashed), sector_bytes, &self.setup, 0)?;
        fsck.check(&recovered.images.device)?;
        let interner = &mut Interner::default();
        let tree = read_back(&recovered.images.device, sector_bytes, &self.setup, interner)?;
        self.history.judge(&tree, tree.fingerprint(), acked).map(drop)
    }
}

/// The effect of a flipped bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flip {
    /// The journal held fewer than two records.
    NothingToFlip,
    /// The volume was refused as damaged, and not changed.
    Refused,
}

/// Performs the run, cuts the power before it closes the volume, flips a bit in a journal record
/// that is not the last, and opens the volume.
pub fn check_bit_flip(case: Case, seed: u64, fsck: &mut Fsck) -> Result<Flip, String> {
    let recording = record(case, &Stage::sound())?;
    let marks = (0..recording.trace.event_count())
        .filter(|cut| recording.trace.marks_before(*cut).count() == case.op_count);
    let Some(cut) = marks.min() else { return Ok(Flip::NothingToFlip) };
    let crashed = recording.trace.crash(cut, Survival::Everything).device;
    let sector = sector_bytes(&case);
    let device = Arc::new(SimDevice::from_image(crashed, sector));
    let mut rng = fastrand::Rng::with_seed(seed);
    let Some((offset, bit)) = pick_bit(&device, &recording.formatted, &mut rng)? else {
        return Ok(Flip::NothingToFlip);
    };
    device.flip_bit(offset, bit);
    let before = device.image();
    let options = recording.setup.options(77);
    match Volume::open(device.clone(), options.clone()) {
        Err(Error::Journal(JournalError::Damaged(_))) => {}
        Err(error) => return Err(format!("bit {bit} of byte {offset}: '{error}', not damaged")),
        Ok(_) => return Err(format!("bit {bit} of byte {offset} flipped, and it opens")),
    }
    if device.image() != before {
        return Err("a damaged volume was written to".into());
    }
    let discarding = OpenOptions { discard_damaged: true, ..options };
    let volume =
        Volume::open(device.clone(), discarding).map_err(|e| format!("discarding: {e}"))?;
    volume.close().map_err(|e| format!("discarding: {e}"))?;
    let image = device.crash(Survival::Nothing);
    fsck.check(&image).map_err(|e| format!("after discarding the damage: {e}"))?;
    let tree = read_back(&image, sector, &recording.setup, &mut Interner::default())?;
    match recording.history.is_state(tree.fingerprint()) {
        true => Ok(Flip::Refused),
        false => Err("after discarding the damage the volume is no state of its history".into()),
    }
}

/// A bit in the descriptor or a payload of a record that is not the last one.
fn pick_bit(
    device: &Arc<SimDevice>,
    formatted: &Formatted,
    rng: &mut fastrand::Rng,
) -> Result<Option<(u64, u8)>, String> {
    let space = Space::new(device.clone(), formatted.journal_extents[1..].to_vec())
        .map_err(|e| format!("the journal's space: {e}"))?;
    let scan = journal::scan(&space, &uuid(device)).map_err(|e| format!("scan: {e}"))?;
    let [records @ .., _last] = &scan.records[..] else { return Ok(None) };
    let Some(record) = rng.choice(records) else { return Ok(None) };
    let within = match record.payload_bytes as u64 {
        1.. if rng.bool() => record.payload_at as u64 + rng.u64(..record.payload_bytes as u64),
        _ => rng.u64(..44),
    };
    let offset = record.offset + within;
    let block = usize::try_from(offset / 4096).map_err(|e| e.to_string())?;
    let start = formatted.journal_extents[1..][block].start;
    Ok(Some((start + offset % 4096, rng.u8(..8))))
}

/// `s_uuid` of the superblock.
fn uuid(device: &SimDevice) -> [u8; 16] {
    let mut uuid = [0; 16];
    device.image().read(1024 + 0x68, &mut uuid);
    uuid
}
