//! `onejournal fsck`.

mod command;
mod view;

pub use command::run;
