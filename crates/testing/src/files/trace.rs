//! Records what was done to simulated files, so that one run can be cut at every event.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::power_cut::{Cursor, Image, Survival, Trace, mix};

/// A change of names or lengths. Changes of bytes are in the files' own traces.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Create { name: String, file: usize },
    Remove { name: String },
    SyncNames { prefix: String },
    Length { file: usize, len_bytes: u64 },
    SyncLength { file: usize },
}

/// The content after a power cut: bytes and length of each file, by name with directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesImage {
    pub(super) files: BTreeMap<String, (Image, u64)>,
    pub(super) file_bytes_max: u64,
}

/// The files with which a run began, and its events in order.
pub struct FilesTrace {
    names: BTreeMap<String, usize>,
    lengths: Vec<u64>,
    file_bytes_max: u64,
    pub(super) changes: Vec<Change>,
    pub(super) times: Vec<u64>,
    pub(super) files: Vec<Trace>,
}

impl FilesTrace {
    pub(super) fn new(
        names: BTreeMap<String, usize>,
        lengths: Vec<u64>,
        file_bytes_max: u64,
    ) -> FilesTrace {
        let (changes, times, files) = (Vec::new(), Vec::new(), Vec::new());
        FilesTrace { names, lengths, file_bytes_max, changes, times, files }
    }

    /// The moments that differ, in no order.
    pub fn moments(&self) -> impl Iterator<Item = u64> {
        let bytes = self.files.iter().flat_map(Trace::moments);
        bytes.chain(self.times.iter().copied())
    }

    /// A cursor before the first event.
    pub fn cursor(&self) -> FilesCursor<'_> {
        let names = self.names.iter().map(|(name, file)| (name.clone(), vec![Some(*file)]));
        let lengths = self.lengths.iter().map(|&len_bytes| vec![len_bytes]);
        FilesCursor {
            trace: self,
            done: 0,
            moment: 0,
            names: names.collect(),
            lengths: lengths.collect(),
            files: self.files.iter().map(Trace::cursor).collect(),
        }
    }
}

/// Goes forwards through the moments of a trace.
pub struct FilesCursor<'a> {
    trace: &'a FilesTrace,
    done: usize,
    moment: u64,
    /// The files that each name has stood for since it was synced, oldest first. The first one is
    /// durable.
    names: BTreeMap<String, Vec<Option<usize>>>,
    /// The lengths that each file has had since it was synced, oldest first.
    lengths: Vec<Vec<u64>>,
    files: Vec<Cursor<'a>>,
}

impl FilesCursor<'_> {
    /// Applies the events before `moment`. If there is an event at `moment`, a power cut leaves any
    /// part of it. Panics if `moment` is before the present one.
    pub fn advance_to_moment(&mut self, moment: u64) {
        assert!(moment >= self.moment, "a cursor only goes forwards");
        self.moment = moment;
        let end = self.trace.times.partition_point(|&time| time < moment);
        for change in &self.trace.changes[self.done..end] {
            apply(change, &mut self.names, &mut self.lengths);
        }
        self.done = end;
        self.files.iter_mut().for_each(|cursor| cursor.advance_to_moment(moment));
    }

    /// The content after a power cut at this point.
    pub fn crash(&self, survival: Survival) -> FilesImage {
        let (mut names, mut lengths) = (self.names.clone(), self.lengths.clone());
        let keeps_current = matches!(survival, Survival::InFlight | Survival::Everything)
            || matches!(survival, Survival::Random(seed) if seed % 2 == 0);
        if keeps_current && self.trace.times.get(self.done) == Some(&self.moment) {
            let current = &self.trace.changes[self.done];
            // A sync that has not returned promises nothing.
            if !matches!(current, Change::SyncNames { .. } | Change::SyncLength { .. }) {
                apply(current, &mut names, &mut lengths);
            }
        }
        let mut rng = Rng::with_seed(match survival {
            Survival::Random(seed) => mix(seed, self.moment),
            _ => 0,
        });
        let mut choose = |count: usize| match survival {
            Survival::Nothing | Survival::InFlight => 0,
            Survival::Issued | Survival::Everything => count - 1,
            Survival::Random(_) => rng.usize(..count),
        };
        let mut files = BTreeMap::new();
        for (name, was) in names {
            let Some(file) = was[choose(was.len())] else { continue };
            let seed = |survival| match survival {
                Survival::Random(seed) => Survival::Random(mix(seed, file as u64)),
                extreme => extreme,
            };
            // A file that is in flight itself has no length yet.
            let lengths = lengths.get(file).map_or(&[0][..], Vec::as_slice);
            let len_bytes = lengths[choose(lengths.len())];
            let mut bytes = self.files[file].crash(seed(survival));
            if len_bytes < lengths[lengths.len() - 1] {
                bytes = cut(bytes, len_bytes);
            }
            files.insert(name, (bytes, len_bytes));
        }
        FilesImage { files, file_bytes_max: self.trace.file_bytes_max }
    }
}

fn apply(
    change: &Change,
    names: &mut BTreeMap<String, Vec<Option<usize>>>,
    lengths: &mut Vec<Vec<u64>>,
) {
    match change {
        Change::Create { name, file } => {
            names.entry(name.clone()).or_insert_with(|| vec![None]).push(Some(*file));
            lengths.push(vec![0]);
            assert_eq!(lengths.len(), file + 1, "files are numbered as they are made");
        }
        Change::Remove { name } => {
            names.get_mut(name).expect("it was there").push(None);
        }
        Change::SyncNames { prefix } => {
            for (_, was) in names.iter_mut().filter(|(name, _)| in_directory(name, prefix)) {
                was.drain(..was.len() - 1);
            }
        }
        Change::Length { file, len_bytes } => lengths[*file].push(*len_bytes),
        Change::SyncLength { file } => {
            let was = &mut lengths[*file];
            was.drain(..was.len() - 1);
        }
    }
}

/// Whether a file is directly in the directory with this prefix.
pub(super) fn in_directory(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| !rest.contains('/'))
}

/// The image with zeros after the length.
fn cut(mut image: Image, len_bytes: u64) -> Image {
    let mut at = len_bytes;
    let mut buf = vec![0; 16 << 10];
    while at < image.size_bytes() {
        let step = (buf.len() as u64 - at % buf.len() as u64).min(image.size_bytes() - at);
        let part = &mut buf[..usize::try_from(step).expect("16 KiB at most")];
        image.read(at, part);
        if part.iter().any(|byte| *byte != 0) {
            part.fill(0);
            image.write(at, part);
        }
        at += step;
    }
    image
}
