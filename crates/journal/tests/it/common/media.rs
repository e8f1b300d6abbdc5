//! One machine: a volume's home on a simulated device, with its journal after it or on simulated
//! NVRAM. A power cut hits all of it.

use std::sync::Arc;

use device::BlockDevice;
use onejournal_journal::{Medium, Space};
use onejournal_testing::{Cursors as MediaCursors, Image, SimClock, SimDevice, SimMedium};
use onejournal_testing::{SimNvram, Survival, Traces as MediaTraces};

/// Where the journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After the home blocks, in two pieces that are not adjacent.
    Device,
    Nvram,
}

/// The media of a machine.
#[derive(Clone)]
pub struct Media {
    pub device: Arc<SimDevice>,
    pub nvram: Option<Arc<SimNvram>>,
    /// A journal from NVRAM that was copied to a device.
    log: Option<Arc<SimDevice>>,
    home_bytes: u64,
}

/// What a power cut leaves.
#[derive(Clone)]
pub struct Images {
    device: Image,
    nvram: Option<Image>,
    home_bytes: u64,
    /// Sectors of the device that the images are from.
    sector_bytes: usize,
}

/// The media on which images are recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Media like those they are from.
    TheSame,
    /// Devices with sectors of this size, also for the journal that was on NVRAM.
    Devices(usize),
}

impl On {
    pub const ALL: [On; 3] = [On::TheSame, On::Devices(512), On::Devices(4096)];
}

impl Media {
    pub fn new(place: Place, home_bytes: u64, journal_bytes: u64) -> Media {
        Media::with_sectors(512, place, home_bytes, journal_bytes)
    }

    pub fn with_sectors(
        sector_bytes: usize,
        place: Place,
        home_bytes: u64,
        journal_bytes: u64,
    ) -> Media {
        let (device_bytes, nvram_bytes) = match place {
            Place::Device => (home_bytes + journal_bytes + 4096, None),
            Place::Nvram => (home_bytes, Some(journal_bytes)),
        };
        let images = Images {
            device: Image::zeroed(device_bytes),
            nvram: nvram_bytes.map(Image::zeroed),
            home_bytes,
            sector_bytes,
        };
        images.power_up()
    }

    pub fn space(&self) -> Space {
        let own = self.nvram.clone().map(|nvram| Medium::Nvram(nvram));
        let own = own.or_else(|| self.log.clone().map(|log| Medium::Block(log)));
        let space = match own {
            Some(own) => {
                let end = own.len_bytes();
                Space::on(own, std::iter::once(0..end).collect())
            }
            None => {
                let end = self.device.size_bytes();
                let cut = self.home_bytes + 8192 + 33 * 4096;
                Space::new(self.device.clone(), vec![self.home_bytes..cut, cut + 4096..end])
            }
        };
        space.expect("it lies on the medium")
    }

    fn all(&self) -> impl Iterator<Item = &SimMedium> {
        std::iter::once(&**self.device).chain(self.nvram.as_ref().map(|nvram| &***nvram))
    }

    pub fn start_trace(&self) {
        self.all().for_each(SimMedium::start_trace);
    }

    pub fn take_trace(&self) -> Traces {
        Traces {
            media: MediaTraces(self.all().map(SimMedium::take_trace).collect()),
            home_bytes: self.home_bytes,
            sector_bytes: self.device.sector_bytes(),
        }
    }
}

impl Images {
    pub fn power_up(&self) -> Media {
        self.power_up_on(On::TheSame)
    }

    pub fn power_up_on(&self, on: On) -> Media {
        let clock = SimClock::default();
        let (sector_bytes, keeps_nvram) = match on {
            On::TheSame => (self.sector_bytes, true),
            On::Devices(sector_bytes) => (sector_bytes, false),
        };
        let device = |image: &Image| {
            Arc::new(SimDevice::from_image(image.clone(), sector_bytes).with_clock(&clock))
        };
        let nvram =
            |image: &Image| Arc::new(SimNvram::from_image(image.clone()).with_clock(&clock));
        Media {
            device: device(&self.device),
            nvram: self.nvram.as_ref().filter(|_| keeps_nvram).map(nvram),
            log: self.nvram.as_ref().filter(|_| !keeps_nvram).map(device),
            home_bytes: self.home_bytes,
        }
    }
}

/// What was done to all media.
pub struct Traces {
    /// The device, then the NVRAM if there is one.
    pub media: MediaTraces,
    home_bytes: u64,
    sector_bytes: usize,
}

impl Traces {
    /// The moments at which power cuts differ, ascending.
    pub fn moments(&self) -> Vec<u64> {
        self.media.moments()
    }

    pub fn cursor(&self) -> Cursors<'_> {
        Cursors { traces: self, moment: 0, media: self.media.cursor() }
    }
}

/// Walks over the moments, forwards.
pub struct Cursors<'a> {
    traces: &'a Traces,
    moment: u64,
    media: MediaCursors<'a>,
}

impl Cursors<'_> {
    pub fn advance_to(&mut self, moment: u64) {
        self.moment = moment;
        self.media.advance_to_moment(moment);
    }

    /// The newest mark so far; 0: there is none.
    pub fn newest_mark(&self) -> u64 {
        self.traces.media.marks_before(self.moment).max().unwrap_or(0)
    }

    pub fn crash(&self, survival: Survival) -> Images {
        let mut images = self.media.crash(survival).into_iter();
        Images {
            device: images.next().expect("the device"),
            nvram: images.next(),
            home_bytes: self.traces.home_bytes,
            sector_bytes: self.traces.sector_bytes,
        }
    }
}
