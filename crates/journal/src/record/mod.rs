//! One transaction as bytes, and bytes as a transaction. No I/O, and no locks.

pub mod codec;
mod contents;
mod decode;
mod encode;
pub(crate) mod form;
mod held;
mod interest;
#[cfg(test)]
mod tests;

pub use contents::DataCheck;
pub(crate) use contents::{BLOCKS_MAX, CHECKS_MAX, Committing, Contents, Logged};
pub(crate) use decode::{Decoded, Expect, claimed_tid, decode};
pub use decode::{Record, Tag};
pub(crate) use encode::{Encoded, Encoding, RecordBuf, encode, max_bytes};
pub use form::{FORM_COUNT, Form, form_name};
pub(crate) use held::Held;
