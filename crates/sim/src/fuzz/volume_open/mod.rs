//! Opening, walking and changing a crafted volume.
//!
//! ```text
//! input:   which volume, how | place, patch, place, patch, ... (up to 24)
//! ```
//! These properties must hold, whatever the volume says. Every call ends, with an answer or an
//! error. A volume that is opened read-only, without a journal to recover, is not written to. If it
//! is read twice, both results are equal. The number of requests is bounded ([`walk`]), whatever
//! size the volume claims to have.

mod change;
pub mod images;
pub mod seal;
pub mod walk;

use std::sync::Arc;

use device::BlockDevice;
use ext4::{DataMode, DeltaCodec, OpenOptions, Timestamp, Volume};
use onejournal_testing::{Image, SimDevice};

use crate::fuzz::input::Input;
use crate::fuzz::patch::Patch;
use images::{PIECE_BYTES, Seed};

const BLOCK_BYTES: usize = 4096;
const PATCH_LIMIT: usize = 24;

/// Wraps the device, between it and the file system.
pub type Wrap = dyn Fn(Arc<SimDevice>) -> Arc<dyn BlockDevice> + Sync;

/// The surroundings of a run.
pub struct Hands<'a> {
    /// The wrapper of the device.
    pub wrap: &'a Wrap,
}

impl Default for Hands<'_> {
    fn default() -> Self {
        Hands { wrap: &|device| device }
    }
}

/// Runs the input.
pub fn run(input: &[u8], hands: &Hands<'_>) {
    let mut input = Input::new(input);
    let seed = &images::seeds()[input.below(images::seeds().len())];
    let how = input.u8();
    let image = crafted(seed, how & 1 == 0, &mut input);
    let device = Arc::new(SimDevice::from_image(image, 512));
    let read_only = how & 2 == 2;
    let options = options(read_only, how >> 2);
    let device_in_hand = (hands.wrap)(device.clone());
    let Ok(volume) = Volume::open(device_in_hand.clone(), options.clone()) else { return };
    let first = walk::walk(&volume);
    if read_only {
        assert!(first == walk::walk(&volume), "read twice it is another volume");
        assert!(seed.is_crashed || device.event_count() == 0, "a reader wrote to the volume");
        return;
    }
    change::change(&volume, &first);
    if volume.close().is_ok()
        && let Ok(volume) = Volume::open(device_in_hand, options)
    {
        walk::walk(&volume);
    }
}

/// The volume of `seed` with the patches of the input. Its checksums are corrected if the input
/// says so.
fn crafted(seed: &Seed, is_sealed: bool, input: &mut Input<'_>) -> Image {
    let mut image = seed.image.clone();
    let mut changed = Vec::new();
    for _ in 0..PATCH_LIMIT {
        if input.is_empty() {
            break;
        }
        let at = seed.targets[usize::from(input.u16()) % seed.targets.len()];
        let mut bytes = [0; PIECE_BYTES];
        image.read(at, &mut bytes);
        Patch::read(input).apply(&mut bytes);
        image.write(at, &bytes);
        changed.push(at / BLOCK_BYTES as u64);
    }
    if is_sealed {
        seed.seals.seal(&mut image, &changed);
    }
    image
}

/// Options for opening it: everything in the caller's thread, with a clock that stands still.
fn options(read_only: bool, how: u8) -> OpenOptions {
    OpenOptions {
        read_only,
        data_mode: DataMode::ALL[usize::from(how & 7) % DataMode::ALL.len()],
        delta_codec: match how >> 3 & 3 {
            0 => DeltaCodec::Runs,
            1 => DeltaCodec::XorLzo,
            2 => DeltaCodec::Copies,
            _ => DeltaCodec::Whole,
        },
        region_count: 2,
        commit_interval: None,
        background: false,
        clock: Arc::new(|| Timestamp { seconds: 1_750_000_000, nanoseconds: 0 }),
        random_seed: 11,
        ..OpenOptions::default()
    }
}
