//! What follows from the figures of a measurement. Nothing here measures, and no judgement reads
//! anything but [`Figures`] and what is known of the place.

mod commit;
#[doc(hidden)]
pub mod example;
mod figures;
mod flushes;
mod suitable;
mod wear;

pub use commit::{Commit, CommitKind, Sum, commits, kib};
pub use figures::{Figures, OneSize, ParallelFigures, SizeFigures, TogetherFigures};
pub use flushes::{Cache, Cost, Reason, Sent, Verdict};
pub use suitable::{Obstacle, Program, Suitability};
pub use wear::{History, Interval, Sample, Wear};
