//! What an experiment found, as JSON; `docs/results/README.md` describes it for readers, this module is the schema.

mod files;
mod machine;
mod schema;

pub use files::{read, read_all, section_path, write};
pub use machine::{Build, Machine, disk_of};
pub use schema::{
    Better, Disturbance, LeftOut, Outcome, Plot, PlotKind, Row, SCHEMA, Section, SectionFile,
    Verdict,
};
