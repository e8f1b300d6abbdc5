//! The engine: transactions, commit, regions, checkpoint, recovery, revoke.
//!
//! It sees *home blocks* (4 KiB blocks of the volume, by number) and byte ranges of them. It does
//! not know what they hold: neither ext4 nor FUSE. All I/O goes through `device::BlockDevice` and
//! `device::Nvram`.
//!
//! A user of the engine reads blocks with [`Journal::read`], changes them with a [`Handle`], and
//! calls [`Journal::sync`] to make a transaction durable.
//!
//! # The states of a transaction
//!
//! ```text
//! handles -> running -> committing -> checkpoint (in a region) -> home
//!            memory     one durable    memory and journal         region freed
//!                       write
//! ```
//!
//! The words are JBD2's. The differences: one checksummed write commits, without a second barrier.
//! Published versions are immutable. Only one handle is open at a time, and dropping it undoes its
//! changes. A checkpoint frees a whole region with one flush and one header, as DJFS'
//! group checkpointing does, but as late as it can, where DJFS does it as early as it can.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   journal              the calls of users, opening, closing, the background threads
//!   engine               the parts of the engine, put together
//!   commit/ recovery/    one durable write for all callers; scan, revoke, replay
//!   transaction/         changes of handles, and data in place with their checks
//!   home/                versions in memory, the home device, checkpoints
//!   ring/                the regions, the headers that change them, bounds of both
//!   context              what all parts use
//!   stats abort medium/
//!   options              how an open journal works
//!   record/              one transaction as bytes, with the codecs
//!   format
//!   memory block_map observer faults error types
//! ```

mod abort;
mod block_map;
mod commit;
mod context;
mod engine;
mod error;
mod faults;
pub mod format;
mod home;
mod journal;
mod medium;
mod memory;
mod observer;
mod options;
mod record;
mod recovery;
mod ring;
mod stats;
mod transaction;
mod types;

pub use commit::{Distribution, Synced, WhenDurable};
pub use error::{JournalError, Result};
#[doc(hidden)]
pub use faults::Fault;
pub use journal::{Aborter, Journal, check_size, write_empty_header};
pub use medium::{Label, Medium, NVRAM_STEP_BYTES, Space};
pub use memory::MemoryLimits;
pub use observer::{BlockOwner, Observer, Written, WrittenAs};
pub use options::{CheckpointPolicy, Options};
pub use record::codec::DeltaCodec;
pub use record::{DataCheck, FORM_COUNT, Form, Record, Tag, codec, form_name};
pub use recovery::{End, RecoverOptions, Recovery, Scan, recover, scan};
pub use ring::Header;
pub use stats::Stats;
pub use transaction::{Handle, InPlaceGuard};
pub use types::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock, Tid};
