//! The results of an experiment as JSON. This module is the schema; `docs/format/results.md`
//! describes it for readers.

mod files;
mod machine;
mod schema;
mod wake_up;

pub use files::{read, read_all, write};
pub use machine::{Build, Machine, disk_of};
pub use schema::{
    Better, Disturbance, LeftOut, Outcome, Plot, PlotKind, Row, SCHEMA, Section, SectionFile, Size,
    Verdict,
};

/// The name of a count of [`Row`]: KiB that reached the devices until everything was home.
pub const ALL_HOME_KIB: &str = "all home, KiB";
