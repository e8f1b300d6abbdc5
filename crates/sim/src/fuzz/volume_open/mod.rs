//! Opening, walking and changing a crafted volume.
//!
//! ```text
//! input:   which volume, how | place, patch, place, patch, ... (up to 24)
//! ```
//! A place is one on the volume, or, if `how` says so and the volume has something to recover, a
//! record of its journal.
//!
//! These properties must hold, whatever the volume says. Every call ends, with an answer or an
//! error. A volume that is opened read-only, without a journal to recover, is not written to. If it
//! is read twice, both results are equal. The number of requests is bounded ([`walk`]), whatever
//! size the volume claims to have.

mod change;
pub mod images;
mod records;
pub mod seal;
pub mod walk;

use std::sync::Arc;

use device::BlockDevice;
use ext4::{DataMode, DeltaCodec, OpenOptions, RootVolume, Timestamp};
use onejournal_testing::{Image, SimDevice};

use crate::fuzz::input::Input;
use crate::fuzz::patch::Patch;
use images::{PIECE_BYTES, Seed};

const BLOCK_BYTES: usize = 4096;
const PATCH_LIMIT: usize = 24;

/// Bits of an input's second byte: checksums stay wrong, the volume is only read, records of the
/// journal are patched, too. The bits between are the options of [`options`].
const UNSEALED: u8 = 1;
const READ_ONLY: u8 = 2;
const OF_RECORDS: u8 = 0x80;

/// Places from this number on are records.
const FIRST_RECORD: usize = 0x8000;

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
    let (seed, how, image) = crafted(&mut input);
    let device = Arc::new(SimDevice::from_image(image, 512));
    let read_only = how & READ_ONLY != 0;
    let options = options(read_only, how >> 2);
    let device_in_hand = (hands.wrap)(device.clone());
    let Ok(volume) = RootVolume::open(device_in_hand.clone(), options.clone()) else { return };
    let first = walk::walk(&volume);
    if read_only {
        assert!(first == walk::walk(&volume), "read twice it is another volume");
        assert!(seed.is_crashed || device.event_count() == 0, "a reader wrote to the volume");
        return;
    }
    change::change(&volume, &first);
    if volume.close().is_ok()
        && let Ok(volume) = RootVolume::open(device_in_hand, options)
    {
        walk::walk(&volume);
    }
}

/// A volume for an attack that `random` chooses: one to a few patches, behind right checksums.
pub fn mutant(random: &mut fastrand::Rng) -> Image {
    let which = random.u8(..);
    let patches: Vec<u8> = (0..random.usize(5..60)).map(|_| random.u8(..)).collect();
    crafted(&mut Input::new(&[&[which, OF_RECORDS][..], &patches].concat())).2
}

/// The volume with the patches of the input, which volume it was, and the input's second byte. The
/// checksums are corrected unless the input says otherwise.
fn crafted(input: &mut Input<'_>) -> (&'static Seed, u8, Image) {
    let seed = &images::seeds()[input.below(images::seeds().len())];
    let how = input.u8();
    let is_sealed = how & UNSEALED == 0;
    let records = seed.records.as_ref().filter(|_| how & OF_RECORDS != 0);
    let mut image = seed.image.clone();
    let mut changed = Vec::new();
    for _ in 0..PATCH_LIMIT {
        if input.is_empty() {
            break;
        }
        let place = usize::from(input.u16());
        if place >= FIRST_RECORD
            && let Some(records) = records
        {
            records.patch(&mut image, place - FIRST_RECORD, &Patch::read(input), is_sealed);
            continue;
        }
        let at = seed.targets[place % seed.targets.len()];
        let mut bytes = [0; PIECE_BYTES];
        image.read(at, &mut bytes);
        Patch::read(input).apply(&mut bytes);
        image.write(at, &bytes);
        changed.push(at / BLOCK_BYTES as u64);
    }
    if is_sealed {
        seed.seals.seal(&mut image, &changed);
    }
    (seed, how, image)
}

/// Options for opening it: everything in the caller's thread, with a clock that stands still.
fn options(read_only: bool, how: u8) -> OpenOptions {
    OpenOptions {
        read_only,
        data_mode: DataMode::ALL[usize::from(how & 7) % DataMode::ALL.len()],
        delta_codec: Some(match how >> 3 & 3 {
            0 => DeltaCodec::Runs,
            1 => DeltaCodec::XorLzo,
            2 => DeltaCodec::Copies,
            _ => DeltaCodec::Whole,
        }),
        region_count: 2,
        commit_interval: None,
        background: false,
        clock: Arc::new(|| Timestamp { seconds: 1_750_000_000, nanoseconds: 0 }),
        random_seed: 11,
        ..OpenOptions::default()
    }
}
