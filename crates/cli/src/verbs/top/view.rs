//! The state of the screen: the newest sample, the previous one, and what the user has chosen.

use std::cmp::Ordering;
use std::path::PathBuf;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::Sample;
use crate::inventory::{FileCounters, SeenMount};

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    #[default]
    Volumes,
    Files,
    Latency,
    Streams,
}

impl Part {
    const ALL: [Part; 4] = [Part::Volumes, Part::Files, Part::Latency, Part::Streams];

    /// The part that is `steps` further. The first part follows the last.
    fn after(self, steps: usize) -> Part {
        let index = Part::ALL.iter().position(|part| *part == self).unwrap_or(0);
        Part::ALL[(index + steps) % Part::ALL.len()]
    }
}

/// The number by which files are sorted, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    #[default]
    Journal,
    Amplification,
    App,
    Fsyncs,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Journal => "journal bytes",
            Order::Amplification => "write amplification",
            Order::App => "bytes of programs",
            Order::Fsyncs => "fsyncs",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Journal => Order::Amplification,
            Order::Amplification => Order::App,
            Order::App => Order::Fsyncs,
            Order::Fsyncs => Order::Journal,
        }
    }

    fn compare(self, one: &FileCounters, other: &FileCounters) -> Ordering {
        match self {
            Order::Journal => other.journal_bytes.cmp(&one.journal_bytes),
            Order::Amplification => {
                let of = |file: &FileCounters| file.write_amplification.unwrap_or(0.0);
                of(other).total_cmp(&of(one))
            }
            Order::App => other.app_bytes.cmp(&one.app_bytes),
            Order::Fsyncs => other.fsyncs.cmp(&one.fsyncs),
        }
    }
}

/// The state of the screen.
#[derive(Default)]
pub struct View {
    pub sample: Option<Sample>,
    pub before: Option<Sample>,
    pub part: Part,
    pub order: Order,
    /// The volume whose files and latency are shown.
    chosen: Option<PathBuf>,
    /// Number of lines of files and streams above the first that is shown.
    pub files_above: usize,
    pub streams_above: usize,
}

impl View {
    pub fn take(&mut self, sample: Sample) {
        self.before = self.sample.replace(sample);
    }

    pub fn volumes(&self) -> &[SeenMount] {
        self.sample.as_ref().map_or(&[], |sample| &sample.volumes)
    }

    /// The index of the chosen volume. If that volume is gone, the first one.
    pub fn chosen_index(&self) -> usize {
        let is_it = |volume: &SeenMount| Some(&volume.path) == self.chosen.as_ref();
        self.volumes().iter().position(is_it).unwrap_or(0)
    }

    pub fn chosen_volume(&self) -> Option<&SeenMount> {
        self.volumes().get(self.chosen_index())
    }

    /// The same volume in the previous sample, unless it was mounted again since then.
    pub fn before(&self, volume: &SeenMount) -> Option<&SeenMount> {
        let mounted = |volume: &SeenMount| volume.counters.number("mount_time_s");
        let is_it =
            |other: &&SeenMount| other.path == volume.path && mounted(other) == mounted(volume);
        self.before.as_ref()?.volumes.iter().find(is_it)
    }

    /// The files of the chosen volume in their order.
    pub fn files(&self) -> Vec<&FileCounters> {
        let mut files: Vec<_> = self.chosen_volume().iter().flat_map(|v| &v.files).collect();
        files.sort_by(|one, other| self.order.compare(one, other));
        files
    }

    /// Handles a key. Returns whether it ends the program.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Tab | KeyCode::Right => self.part = self.part.after(1),
            KeyCode::BackTab | KeyCode::Left => self.part = self.part.after(Part::ALL.len() - 1),
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.files_above = 0;
            }
            KeyCode::Down => self.step(true),
            KeyCode::Up => self.step(false),
            _ => {}
        }
        false
    }

    /// Scrolls files and streams; in other parts, chooses another volume.
    fn step(&mut self, is_down: bool) {
        let by_one = |number: usize| match is_down {
            true => number + 1,
            false => number.saturating_sub(1),
        };
        match self.part {
            Part::Files => self.files_above = by_one(self.files_above),
            Part::Streams => self.streams_above = by_one(self.streams_above),
            Part::Volumes | Part::Latency => {
                let index = by_one(self.chosen_index());
                let Some(volume) = self.volumes().get(index) else { return };
                self.chosen = Some(volume.path.clone());
                self.files_above = 0;
            }
        }
    }
}
