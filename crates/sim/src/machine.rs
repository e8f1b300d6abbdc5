//! The media of a run: the volume's device, and the medium of an external journal. The power of all
//! media is cut at the same moment.
//!
//! The events of all media are numbered in their common order. A *cut* is a number of events. If
//! the journal is on the volume, these are the events of its device.

use std::sync::Arc;

use device::{BlockDevice, MemoryDevice, Nvram};
use ext4::NewJournal;
use journal::{Journal, Label, Medium, Options};
use onejournal_testing::{
    Cursors as MediaCursors, Event, Image, SimClock, SimDevice, SimMedium, SimNvram, Survival,
    Trace, Traces as MediaTraces,
};

use crate::case::{Case, JournalOn};
use crate::format::Formatted;

/// Size of a region of an external journal, in bytes: little more than the minimum, so that regions
/// are reused soon.
const REGION_BYTES: u64 = 140 * 4096;

/// The media while they have power.
pub struct Machine {
    /// The device of the volume.
    pub device: Arc<SimDevice>,
    own: Option<Own>,
}

enum Own {
    Nvram(Arc<SimNvram>),
    Device(Arc<SimDevice>),
}

/// The content of the media without power.
#[derive(Clone)]
pub struct Images {
    /// The device of the volume.
    pub device: Image,
    /// The external journal, if there is one.
    pub own: Option<Image>,
    on: JournalOn,
}

/// Wrappers between the engine and its media. Usually there are none.
pub struct Wraps<'a> {
    /// Wraps a device.
    pub device: &'a dyn Fn(Arc<SimDevice>) -> Arc<dyn BlockDevice>,
    /// Wraps NVRAM.
    pub nvram: &'a dyn Fn(Arc<SimNvram>) -> Arc<dyn Nvram>,
}

impl Images {
    /// The media with which a run of that case begins. The journal has a label and is empty. A
    /// journal on a device is the volume's own; one on NVRAM is the volume's for each mount.
    pub fn fresh(
        case: &Case,
        formatted: &Formatted,
        region_count: usize,
    ) -> Result<Images, String> {
        let (on, device) = (case.journal.on, formatted.image.clone());
        match on {
            JournalOn::Volume => Ok(Images { device, own: None, on }),
            JournalOn::Nvram => {
                let own = Some(empty_journal(on, formatted, region_count)?);
                Ok(Images { device, own, on })
            }
            JournalOn::Device => with_own_journal(formatted, region_count),
        }
    }

    /// The images of the volume's device, and of the journal's medium if it has one.
    fn of(mut images: impl Iterator<Item = Image>, on: JournalOn) -> Images {
        Images { device: images.next().expect("the volume's device"), own: images.next(), on }
    }

    /// A volume whose journal is in the volume.
    pub fn whole(device: Image) -> Images {
        Images { device, own: None, on: JournalOn::Volume }
    }

    /// Whether the volume has a journal of its own elsewhere.
    pub fn has_own_journal(&self) -> bool {
        self.on == JournalOn::Device
    }

    /// The same media with power. `sector_bytes` is the sector size of devices.
    pub fn power_up(&self, sector_bytes: usize) -> Machine {
        let clock = SimClock::default();
        let device =
            |image: &Image| SimDevice::from_image(image.clone(), sector_bytes).with_clock(&clock);
        let nvram = |image: &Image| SimNvram::from_image(image.clone()).with_clock(&clock);
        let own = self.own.as_ref().map(|image| match self.on {
            JournalOn::Nvram => Own::Nvram(Arc::new(nvram(image))),
            _ => Own::Device(Arc::new(device(image))),
        });
        Machine { device: Arc::new(device(&self.device)), own }
    }
}

/// The volume, and a device with its own journal.
fn with_own_journal(formatted: &Formatted, count: usize) -> Result<Images, String> {
    let own = Some(Image::zeroed(journal_bytes(count)));
    let images = Images { device: formatted.image.clone(), own, on: JournalOn::Device };
    let machine = images.power_up(4096);
    let home: Arc<dyn BlockDevice> = machine.device.clone();
    let medium = machine.journal(&Machine::SOUND).expect("it has a medium of its own");
    let new = NewJournal { medium, size_bytes: None, force: false };
    let made = ext4::change_journal(&home, Some(&new), None);
    made.map_err(|e| format!("the volume's own journal: {e}"))?;
    Ok(machine.crash(Survival::Nothing))
}

/// Size of a journal with so many regions.
fn journal_bytes(region_count: usize) -> u64 {
    3 * 4096 + region_count as u64 * REGION_BYTES
}

/// An empty journal of the volume in use, so that a run does not begin by writing zeros everywhere.
fn empty_journal(on: JournalOn, formatted: &Formatted, count: usize) -> Result<Image, String> {
    let own = Some(Image::zeroed(journal_bytes(count)));
    let images = Images { device: Image::zeroed(4096), own, on };
    let machine = images.power_up(4096);
    let medium = machine.journal(&Machine::SOUND).expect("it has a medium of its own");
    let mut volume_uuid = [0; 16];
    formatted.image.read(1024 + 0x68, &mut volume_uuid);
    let label = Label { journal_uuid: *b"a sim's journal.", volume_uuid, block_count: 0 };
    let options = Options {
        region_count: u32::try_from(count).map_err(|e| e.to_string())?,
        commit_interval: None,
        background: false,
        incarnation: 1,
        ..Options::default()
    };
    let made = label.write(&medium).and_then(|()| {
        let home = Arc::new(MemoryDevice::new(4096, 4096));
        Journal::open(home, label.space(&medium)?, volume_uuid, options)?.close()
    });
    made.map_err(|e| format!("an empty journal: {e}"))?;
    machine.crash(Survival::Nothing).own.ok_or_else(|| "it has no medium".into())
}

impl Machine {
    /// No wrappers.
    pub const SOUND: Wraps<'static> = Wraps { device: &|device| device, nvram: &|nvram| nvram };

    /// The medium of the external journal, if there is one.
    pub fn journal(&self, wraps: &Wraps<'_>) -> Option<Medium> {
        self.own.as_ref().map(|own| match own {
            Own::Nvram(nvram) => Medium::Nvram((wraps.nvram)(nvram.clone())),
            Own::Device(device) => Medium::Block((wraps.device)(device.clone())),
        })
    }

    /// The media, the volume's device first.
    fn media(&self) -> impl Iterator<Item = &SimMedium> {
        let own = self.own.as_ref().map(|own| match own {
            Own::Nvram(nvram) => &***nvram,
            Own::Device(device) => &***device,
        });
        std::iter::once(&**self.device).chain(own)
    }

    /// Begins to record what is done to the media.
    pub fn start_trace(&self) {
        self.media().for_each(SimMedium::start_trace);
    }

    /// Ends the recording.
    pub fn take_trace(&self) -> Traces {
        Traces::new(self.media().map(SimMedium::take_trace).collect(), self.on())
    }

    /// Number of writes and flushes so far.
    pub fn event_count(&self) -> u64 {
        self.media().map(SimMedium::event_count).sum()
    }

    /// The content after a power cut between two operations.
    pub fn crash(&self, survival: Survival) -> Images {
        Images::of(self.media().map(|medium| medium.crash(survival)), self.on())
    }

    fn on(&self) -> JournalOn {
        match &self.own {
            None => JournalOn::Volume,
            Some(Own::Nvram(_)) => JournalOn::Nvram,
            Some(Own::Device(_)) => JournalOn::Device,
        }
    }
}

/// Records of what was done to the media, so that the run can be cut at every event.
pub struct Traces {
    media: MediaTraces,
    on: JournalOn,
    /// The time of each event, in order, and whether it is a mark.
    events: Vec<(u64, bool)>,
}

impl Traces {
    fn new(media: Vec<Trace>, on: JournalOn) -> Traces {
        let is_mark = |event: &Event| matches!(event, Event::Mark(_));
        let of = |trace: &Trace| -> Vec<(u64, bool)> {
            trace.times.iter().copied().zip(trace.events.iter().map(is_mark)).collect()
        };
        let mut events: Vec<_> = media.iter().flat_map(of).collect();
        events.sort_unstable();
        Traces { media: MediaTraces(media), on, events }
    }

    /// Number of events.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The cuts that differ: before each event that is not a mark, and after the last event.
    pub fn cuts(&self) -> impl Iterator<Item = usize> {
        (0..=self.events.len()).filter(|cut| self.events.get(*cut).is_none_or(|(_, mark)| !mark))
    }

    fn moment(&self, cut: usize) -> u64 {
        self.events.get(cut).map_or(u64::MAX, |(time, _)| *time)
    }

    /// The marks among the first `cut` events, oldest first.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        self.media.marks_before(self.moment(cut))
    }

    /// The content after a power cut at `cut`. For many cuts use [`Traces::cursor`].
    pub fn crash(&self, cut: usize, survival: Survival) -> Images {
        let mut cursor = self.cursor();
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    /// A cursor at cut 0.
    pub fn cursor(&self) -> Cursors<'_> {
        let mut cursors = Cursors { traces: self, cut: 0, media: self.media.cursor() };
        cursors.advance_to(0);
        cursors
    }
}

/// Goes forwards through the cuts of all media.
pub struct Cursors<'a> {
    traces: &'a Traces,
    cut: usize,
    media: MediaCursors<'a>,
}

impl Cursors<'_> {
    /// The number of events so far.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Continues to `cut`. Panics if that is earlier than the present cut.
    pub fn advance_to(&mut self, cut: usize) {
        self.cut = cut;
        self.media.advance_to_moment(self.traces.moment(cut));
    }

    /// The content after a power cut at this point.
    pub fn crash(&self, survival: Survival) -> Images {
        Images::of(self.media.crash(survival).into_iter(), self.traces.on)
    }
}
