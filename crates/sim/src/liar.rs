//! Media that break their promises. Crash enumeration must notice that.

use std::sync::Arc;

use device::{BlockDevice, Durability, Nvram, Result};
use onejournal_testing::{SimDevice, SimNvram};

/// The broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Flushes do nothing.
    FlushDropped,
    /// Durable writes stay in the cache.
    DurableWriteCached,
}

/// A simulated device with a controller that breaks a promise.
pub struct Liar {
    device: Arc<SimDevice>,
    lie: Lie,
}

impl Liar {
    /// Puts the controller in front of `device`.
    pub fn wrap(device: Arc<SimDevice>, lie: Lie) -> Arc<dyn BlockDevice> {
        Arc::new(Liar { device, lie })
    }
}

impl BlockDevice for Liar {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn sector_bytes(&self) -> usize {
        self.device.sector_bytes()
    }

    fn durability(&self) -> Durability {
        self.device.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.device.write(offset, data)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self.lie {
            Lie::DurableWriteCached => self.device.write(offset, data),
            Lie::FlushDropped => self.device.write_durable(offset, data),
        }
    }

    fn flush(&self) -> Result<()> {
        match self.lie {
            Lie::FlushDropped => Ok(()),
            Lie::DurableWriteCached => self.device.flush(),
        }
    }
}

/// Simulated NVRAM whose fences do nothing.
pub struct UnfencedNvram(pub Arc<SimNvram>);

impl Nvram for UnfencedNvram {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(offset, buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.store(offset, data)
    }

    fn persist(&self) -> Result<()> {
        Ok(())
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        self.0.store(offset, &pieces.concat())
    }
}
