//! A disk in memory that records its requests, for recoveries in this process.

use device::sync::Mutex;
use device::{BlockDevice, Durability, Result};
use onejournal_testing::Image;
use onejournal_testing::drive::Recorder;
use onejournal_testing::drive::record::Data;

/// The disk. Its sector size is given, and does not depend on the unit that survives a cut.
pub struct RamDisk {
    image: Mutex<Image>,
    size_bytes: u64,
    sector_bytes: usize,
    recorder: Recorder,
    number: u8,
}

impl RamDisk {
    /// A disk that durably holds `image`, with the number `number` in the record.
    pub fn new(image: Image, sector_bytes: usize, recorder: Recorder, number: u8) -> RamDisk {
        let size_bytes = image.size_bytes();
        RamDisk { image: Mutex::new(image), size_bytes, sector_bytes, recorder, number }
    }

    /// What reads see.
    pub fn image(&self) -> Image {
        self.image.lock().clone()
    }

    fn check(&self, offset: u64, len_bytes: usize) {
        let sector = self.sector_bytes as u64;
        let len_bytes = len_bytes as u64;
        assert!(
            offset.is_multiple_of(sector) && len_bytes.is_multiple_of(sector),
            "{len_bytes} bytes at {offset} are not made of sectors of {sector}"
        );
        let end = offset.checked_add(len_bytes).expect("a place");
        assert!(end <= self.size_bytes, "{len_bytes} bytes at {offset} are outside of the disk");
    }
}

impl BlockDevice for RamDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_bytes(&self) -> usize {
        self.sector_bytes
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len());
        self.image.lock().read(offset, buf);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len());
        let mut image = self.image.lock();
        let request = self.recorder.write(self.number, offset, Data::Bytes(data.into()));
        image.write(offset, data);
        self.recorder.end(request);
        Ok(())
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len());
        let mut image = self.image.lock();
        let request = self.recorder.write_durable(self.number, offset, Data::Bytes(data.into()));
        image.write(offset, data);
        self.recorder.end(request);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let _image = self.image.lock();
        let request = self.recorder.flush(self.number);
        self.recorder.end(request);
        Ok(())
    }
}
