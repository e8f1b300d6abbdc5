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
//!   journal                    the calls of users, opening, closing, the background threads
//!   engine                     the parts of the engine, put together
//!   commit recovery            one durable write for all callers; scan, revoke, replay
//!   in_place scan              data beside the journal; which records make up history
//!   checkpoint region_bytes    brings filled regions home; the bytes that recovery reads
//!   handle                     one operation's changes
//!   ring limits                the durable headers of the regions; bounds of records and regions
//!   regions record             the regions in memory; one transaction as bytes
//!   running data_checks        what handles have published; checksums of data in place
//!   blocks                     the newest version of each block
//!   home cache live            the home device; versions in memory; records that count
//!   external header            the journal's label and its two header slots
//!   context space under_way    what all parts use; the journal's extents; writes in place
//!   stats abort medium flushes
//!   form                       how the change of a block becomes bytes
//!   codec/ format options
//!   memory block_map gathering distribution observer faults error types
//! ```

mod abort;
mod block_map;
mod blocks;
mod cache;
mod checkpoint;
pub mod codec;
mod commit;
mod context;
mod data_checks;
mod distribution;
mod engine;
mod error;
mod external;
mod faults;
mod flushes;
mod form;
pub mod format;
mod gathering;
mod handle;
mod header;
mod home;
mod in_place;
mod journal;
mod limits;
mod live;
mod medium;
mod memory;
mod observer;
mod options;
mod record;
mod recovery;
mod region_bytes;
mod regions;
mod ring;
mod running;
mod scan;
mod space;
mod stats;
mod types;
mod under_way;

pub use data_checks::DataCheck;
pub use distribution::Distribution;
pub use error::{JournalError, Result};
pub use external::Label;
#[doc(hidden)]
pub use faults::Fault;
pub use form::{Form, form_name};
pub use handle::Handle;
pub use header::Header;
pub use journal::{Aborter, Journal, check_size, write_empty_header};
pub use medium::{Medium, NVRAM_STEP_BYTES};
pub use memory::MemoryLimits;
pub use observer::{BlockOwner, Observer, Written, WrittenAs};
pub use options::{CheckpointPolicy, DeltaCodec, Options};
pub use record::{Record, Tag};
pub use recovery::{RecoverOptions, Recovery, recover};
pub use running::InPlaceGuard;
pub use scan::{End, Scan, scan};
pub use space::Space;
pub use stats::Stats;
pub use types::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock, Tid};
