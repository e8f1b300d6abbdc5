//! Recovers a crashed image with the real code, and reads the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use device::BlockDevice;
use ext4::{OpenOptions, Timestamp, Volume};
use onejournal_testing::{Image, SimDevice, Survival};

use crate::machine::{Images, Machine, Traces};
use crate::session::Setup;
use crate::tree::{Interner, Tree, read_tree};

/// The first incarnation number of recoveries, distinct from those of runs.
const RECOVERY_INCARNATION: u64 = 900;

/// A recovered volume.
pub struct Recovered {
    /// The durable state after the volume was opened and closed again: the power is cut right after
    /// that.
    pub images: Images,
    /// What recovery did to the media.
    pub trace: Traces,
}

/// Opens and closes the volume. `round` counts recoveries of one crash.
pub fn recover(
    crashed: &Images,
    sector_bytes: usize,
    setup: &Setup,
    round: u64,
) -> Result<Recovered, String> {
    let machine = crashed.power_up(sector_bytes);
    machine.start_trace();
    let setup = setup.with_journal(machine.journal(&Machine::SOUND));
    let options = still(setup.options(RECOVERY_INCARNATION + round));
    no_panic("recovery", || {
        let volume = Volume::open(machine.device.clone(), options)
            .map_err(|e| format!("does not open: {e}"))?;
        volume.close().map_err(|e| format!("does not close: {e}"))
    })?;
    let trace = machine.take_trace();
    let images = machine.crash(Survival::Nothing);
    check_record(&images, sector_bytes)?;
    Ok(Recovered { images, trace })
}

/// A closed volume records its own journal, and no other one.
fn check_record(images: &Images, sector_bytes: usize) -> Result<(), String> {
    let device: Arc<dyn BlockDevice> = images.power_up(sector_bytes).device;
    let recorded = ext4::recorded_journal(&device).map_err(|e| format!("its journal: {e}"))?;
    match (images.has_own_journal(), recorded) {
        (true, Some(recorded)) if !recorded.holds_changes => Ok(()),
        (false, None) => Ok(()),
        (_, recorded) => Err(format!("closed, it records journal {recorded:?}")),
    }
}

/// Reads the whole volume, which is closed, so its journal is not needed. Nothing may be written to
/// it.
pub fn read_back(
    image: &Image,
    sector_bytes: usize,
    setup: &Setup,
    interner: &mut Interner,
) -> Result<Tree, String> {
    let device = Arc::new(SimDevice::from_image(image.clone(), sector_bytes));
    let options = OpenOptions { read_only: true, ..still(setup.options(RECOVERY_INCARNATION)) };
    let tree = no_panic("reading", || {
        let volume = Volume::open(device.clone(), options)
            .map_err(|e| format!("does not open for reading: {e}"))?;
        read_tree(&volume, interner)
    })?;
    match device.event_count() {
        0 => Ok(tree),
        count => Err(format!("reading a clean volume wrote to it ({count} events)")),
    }
}

/// Opens a crashed volume read-only, which recovers it first, and reads it. Also returns what is
/// durable after that.
pub fn recover_read_only(
    crashed: &Images,
    sector_bytes: usize,
    setup: &Setup,
    interner: &mut Interner,
) -> Result<(Tree, Image), String> {
    let machine = crashed.power_up(sector_bytes);
    let device = &machine.device;
    let setup = setup.with_journal(machine.journal(&Machine::SOUND));
    let options = OpenOptions { read_only: true, ..still(setup.options(RECOVERY_INCARNATION + 3)) };
    let tree = no_panic("a read-only opening", || {
        let volume = Volume::open(device.clone(), options)
            .map_err(|e| format!("does not open read-only: {e}"))?;
        read_tree(&volume, interner)
    })?;
    Ok((tree, device.crash(Survival::Nothing)))
}

/// The options with a clock that stands still, so that two recoveries of one crash can be compared.
fn still(options: OpenOptions) -> OpenOptions {
    let clock = || Timestamp { seconds: 1_750_000_000, nanoseconds: 0 };
    OpenOptions { clock: Arc::new(clock), ..options }
}

/// Runs `work`. A panic becomes an error.
pub fn no_panic<T>(what: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("{what} panics: {}", text.unwrap_or_default()))
    })
}
