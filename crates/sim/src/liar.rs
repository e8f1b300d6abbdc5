//! Media that break their promises. Crash enumeration must notice that.

use std::sync::Arc;

use device::{BlockDevice, Durability, Nvram, Result};
use onejournal_testing::{Layer, Layered, SimDevice, SimNvram};

/// The broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Flushes do nothing.
    FlushDropped,
    /// Durable writes stay in the cache.
    DurableWriteCached,
}

impl Lie {
    /// Puts a controller that tells this lie in front of `device`.
    pub fn wrap(self, device: Arc<SimDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Layered::new(device, self))
    }
}

impl Layer for Lie {
    fn write_durable(&self, device: &dyn BlockDevice, offset: u64, data: &[u8]) -> Result<()> {
        match self {
            Lie::DurableWriteCached => device.write(offset, data),
            Lie::FlushDropped => device.write_durable(offset, data),
        }
    }

    fn flush(&self, device: &dyn BlockDevice) -> Result<()> {
        match self {
            Lie::FlushDropped => Ok(()),
            Lie::DurableWriteCached => device.flush(),
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
