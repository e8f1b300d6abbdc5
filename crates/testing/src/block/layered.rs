//! A block device with a layer in front of it that changes what some requests do.

use std::sync::Arc;

use device::{BlockDevice, Durability, Result};

/// What happens to the requests of a device. Each method passes its request on to `device`; a layer
/// overrides the methods whose requests it changes.
pub trait Layer: Send + Sync {
    /// See [`BlockDevice::read`].
    fn read(&self, device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> Result<()> {
        device.read(offset, buf)
    }

    /// See [`BlockDevice::write`].
    fn write(&self, device: &dyn BlockDevice, offset: u64, data: &[u8]) -> Result<()> {
        device.write(offset, data)
    }

    /// See [`BlockDevice::write_spans`]. Without an override the spans come to [`Layer::write`] one
    /// by one.
    fn write_spans(
        &self,
        device: &dyn BlockDevice,
        spans: &[(u64, &[u8])],
        _at_a_time: usize,
    ) -> Result<()> {
        spans.iter().try_for_each(|(offset, data)| self.write(device, *offset, data))
    }

    /// See [`BlockDevice::write_durable`].
    fn write_durable(&self, device: &dyn BlockDevice, offset: u64, data: &[u8]) -> Result<()> {
        device.write_durable(offset, data)
    }

    /// See [`BlockDevice::write_fua`]. Without an override there is no FUA, whatever `device` has,
    /// so that no durable write goes around the layer.
    fn write_fua(&self, _: &dyn BlockDevice, _offset: u64, _data: &[u8]) -> Option<Result<()>> {
        None
    }

    /// See [`BlockDevice::flush`].
    fn flush(&self, device: &dyn BlockDevice) -> Result<()> {
        device.flush()
    }
}

/// A device with a layer in front of it.
pub struct Layered<D, L> {
    /// The device behind the layer.
    pub device: Arc<D>,
    /// The layer.
    pub layer: L,
}

impl<D, L> Layered<D, L> {
    /// `device` with `layer` in front of it.
    pub fn new(device: Arc<D>, layer: L) -> Self {
        Layered { device, layer }
    }
}

impl<D: BlockDevice, L: Layer> BlockDevice for Layered<D, L> {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn sector_bytes(&self) -> usize {
        self.device.sector_bytes()
    }

    fn durability(&self) -> Durability {
        self.device.durability()
    }

    fn caches(&self) -> &[u64] {
        self.device.caches()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.layer.read(&*self.device, offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.layer.write(&*self.device, offset, data)
    }

    fn write_spans(&self, spans: &[(u64, &[u8])], at_a_time: usize) -> Result<()> {
        self.layer.write_spans(&*self.device, spans, at_a_time)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.layer.write_durable(&*self.device, offset, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Option<Result<()>> {
        self.layer.write_fua(&*self.device, offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.layer.flush(&*self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, SimDevice};

    struct Transparent;
    impl Layer for Transparent {}

    struct NeverDurable;
    impl Layer for NeverDurable {
        fn write_durable(&self, device: &dyn BlockDevice, offset: u64, data: &[u8]) -> Result<()> {
            device.write(offset, data)
        }
    }

    fn events(layer: impl Layer) -> Vec<Event> {
        let device = Layered::new(Arc::new(SimDevice::new(4096, 512)), layer);
        device.device.start_trace();
        device.write(0, &[1; 512]).expect("a write");
        assert!(device.write_fua(512, &[2; 512]).is_none(), "it would go around the layer");
        device.write_durable(512, &[2; 512]).expect("a durable write");
        device.flush().expect("a flush");
        let mut found = [0; 512];
        device.read(512, &mut found).expect("a read");
        assert_eq!(found, [2; 512]);
        device.device.take_trace().events
    }

    #[test]
    fn a_layer_changes_what_it_overrides_and_nothing_else() {
        let passed = events(Transparent);
        assert!(matches!(
            passed[..],
            [Event::Write { .. }, Event::DurableWrite { offset: 512, .. }, Event::Flush { .. }]
        ));
        let changed = events(NeverDurable);
        assert!(matches!(
            changed[..],
            [Event::Write { .. }, Event::Write { offset: 512, .. }, Event::Flush { .. }]
        ));
    }
}
