//! A volume's home on a simulated device, its journal behind it or on simulated NVRAM: one
//! machine, whose power is cut as a whole.

use std::sync::Arc;

use device::{
    BlockDevice, Cursor, Image, NvramCursor, NvramTrace, SimClock, SimDevice, SimNvram, Survival,
    Trace,
};
use journal::{Medium, Space};

/// Where the journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind the home blocks, in two pieces that do not follow each other.
    Device,
    Nvram,
}

/// The media of a machine.
#[derive(Clone)]
pub struct Media {
    pub device: Arc<SimDevice>,
    pub nvram: Option<Arc<SimNvram>>,
    home_bytes: u64,
}

/// What a power cut leaves.
#[derive(Clone)]
pub struct Images {
    device: Image,
    nvram: Option<Image>,
    home_bytes: u64,
}

impl Media {
    pub fn new(place: Place, home_bytes: u64, journal_bytes: u64) -> Media {
        let (device_bytes, nvram_bytes) = match place {
            Place::Device => (home_bytes + journal_bytes + 4096, None),
            Place::Nvram => (home_bytes, Some(journal_bytes)),
        };
        let images = Images {
            device: Image::zeroed(device_bytes),
            nvram: nvram_bytes.map(Image::zeroed),
            home_bytes,
        };
        images.power_up()
    }

    pub fn space(&self) -> Space {
        let space = match &self.nvram {
            Some(nvram) => {
                let end = device::Nvram::len_bytes(&**nvram);
                Space::on(Medium::Nvram(nvram.clone()), std::iter::once(0..end).collect())
            }
            None => {
                let end = self.device.size_bytes();
                let cut = self.home_bytes + 8192 + 33 * 4096;
                Space::new(self.device.clone(), vec![self.home_bytes..cut, cut + 4096..end])
            }
        };
        space.expect("it lies on the medium")
    }

    pub fn start_trace(&self) {
        self.device.start_trace();
        self.nvram.iter().for_each(|nvram| nvram.start_trace());
    }

    pub fn take_trace(&self) -> Traces {
        Traces {
            device: self.device.take_trace(),
            nvram: self.nvram.as_ref().map(|nvram| nvram.take_trace()),
            home_bytes: self.home_bytes,
        }
    }
}

impl Images {
    pub fn power_up(&self) -> Media {
        let clock = SimClock::default();
        let device = SimDevice::from_image(self.device.clone(), 512).with_clock(&clock);
        let nvram = |image: &Image| SimNvram::from_image(image.clone()).with_clock(&clock);
        Media {
            device: Arc::new(device),
            nvram: self.nvram.as_ref().map(|image| Arc::new(nvram(image))),
            home_bytes: self.home_bytes,
        }
    }
}

/// What was done to all media.
pub struct Traces {
    pub device: Trace,
    pub nvram: Option<NvramTrace>,
    home_bytes: u64,
}

impl Traces {
    /// The moments at which power cuts differ, ascending.
    pub fn moments(&self) -> Vec<u64> {
        let mut moments: Vec<u64> = self.device.moments().collect();
        moments.extend(self.nvram.iter().flat_map(|trace| trace.moments()));
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    pub fn cursor(&self) -> Cursors<'_> {
        Cursors {
            traces: self,
            device: self.device.cursor(),
            nvram: self.nvram.as_ref().map(|trace| trace.cursor()),
        }
    }
}

/// Walks over the moments, forwards.
pub struct Cursors<'a> {
    traces: &'a Traces,
    device: Cursor<'a>,
    nvram: Option<NvramCursor<'a>>,
}

impl Cursors<'_> {
    pub fn advance_to(&mut self, moment: u64) {
        self.device.advance_to_moment(moment);
        self.nvram.iter_mut().for_each(|cursor| cursor.advance_to_moment(moment));
    }

    /// The newest mark on the device so far; 0: there is none.
    pub fn newest_mark(&self) -> u64 {
        self.traces.device.marks_before(self.device.cut()).max().unwrap_or(0)
    }

    pub fn crash(&self, survival: Survival) -> Images {
        Images {
            device: self.device.crash(survival),
            nvram: self.nvram.as_ref().map(|cursor| cursor.crash(survival)),
            home_bytes: self.traces.home_bytes,
        }
    }
}
