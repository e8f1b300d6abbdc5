//! The media of one case, in memory: the volume's home blocks, and the journal on either medium.

use std::sync::Arc;

use device::{BlockDevice, MemoryDevice};
use journal::{JournalError, Medium, RecoverOptions, Recovery, Space};
use onejournal_testing::{Image, SimNvram};

use super::craft::{Crafted, Kind};
use super::stock::UUID;

/// Home and journal.
pub(super) struct Machine {
    home: Arc<MemoryDevice>,
    journal: Medium,
}

impl Machine {
    pub(super) fn new(crafted: &Crafted) -> Machine {
        let device = |sector| Medium::Block(Arc::new(memory(&crafted.journal, sector)));
        let journal = match crafted.kind {
            Kind::Block512 => device(512),
            Kind::Block4096 => device(4096),
            Kind::Nvram => {
                let image = Image::from_bytes(&crafted.journal);
                Medium::Nvram(Arc::new(SimNvram::from_image(image)))
            }
        };
        Machine { home: Arc::new(memory(&crafted.home, 512)), journal }
    }

    /// The same media after a restart.
    pub(super) fn power_up(&self) -> Machine {
        Machine { home: self.home.clone(), journal: self.journal.clone() }
    }

    pub(super) fn space(&self) -> Space {
        let all = 0..self.journal.len_bytes();
        Space::on(self.journal.clone(), std::iter::once(all).collect()).expect("whole blocks")
    }

    pub(super) fn recover(&self, options: &RecoverOptions) -> Result<Recovery, JournalError> {
        let home: Arc<dyn BlockDevice> = self.home.clone();
        journal::recover(&home, &self.space(), &UUID, options)
    }

    pub(super) fn home(&self) -> Vec<u8> {
        self.home.to_bytes()
    }

    pub(super) fn journal(&self) -> Vec<u8> {
        let len_bytes = usize::try_from(self.journal.len_bytes()).expect("it fits in memory");
        let mut bytes = vec![0; len_bytes];
        let read = match &self.journal {
            Medium::Block(device) => device.read(0, &mut bytes),
            Medium::Nvram(nvram) => nvram.read(0, &mut bytes),
        };
        read.expect("memory does not fail");
        bytes
    }
}

fn memory(bytes: &[u8], sector_bytes: usize) -> MemoryDevice {
    MemoryDevice::from_bytes(bytes.to_vec(), sector_bytes)
}

/// A mixture: some sectors of `new`, and the others of `old`.
pub(super) fn mixture(old: &[u8], new: &[u8], salt: u8) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(u64::from(salt));
    let sectors = old.chunks(512).zip(new.chunks(512));
    sectors.flat_map(|(old, new)| if rng.bool() { new } else { old }).copied().collect()
}
