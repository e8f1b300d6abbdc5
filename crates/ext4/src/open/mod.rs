//! Opening and closing a volume, and operations on a volume that is not open.

mod area;
mod claim;
mod feature_bits;
mod fixed_inodes;
mod found;
mod give_up;
mod heartbeat;
mod mkfs;
mod opening;
mod options;
mod own_journal;
mod place;
mod raw;
mod recorded;
mod recover;
mod repair;
mod survey;
mod uuid;

pub use claim::{Claimant, check_claim};
pub use give_up::give_up_journal;
pub use mkfs::{begin_mkfs, finish_mkfs, is_mkfs_under_way};
pub(crate) use opening::{Opened, open, reopen_writable};
pub use options::{JournalChoice, OpenOptions};
pub use own_journal::{NewJournal, OWN_JOURNAL_BYTES_MAX, change_journal};
pub use recorded::{RecordedJournal, recorded_journal};
pub use repair::{apply_repair, can_be_repaired, mend_superblock, recover_only};
pub use survey::Survey;
