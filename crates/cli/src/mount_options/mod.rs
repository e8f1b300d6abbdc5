//! `-o` of `onejournal mount`.
//!
//! The parser, `-o help`, the man page and the tables in documents follow from one table, which is
//! in `table.rs`. An option is added there, with a field of [`Parsed`] that it sets.

mod help;
mod option;
mod others;
mod parse;
mod parsed;
mod table;

pub use help::{asks_for_help, group, help};
pub use parse::{is_known, parse, split, words};
pub use parsed::Parsed;
