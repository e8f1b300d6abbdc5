//! Opening and closing a volume, and operations on a volume that is not open.

mod area;
mod claim;
mod feature_bits;
mod finish_mkfs;
mod fixed_inodes;
mod found;
mod give_up;
mod heartbeat;
mod opening;
mod options;
mod place;
mod raw;
mod recover;
mod repair;
mod survey;

pub use claim::{Claimant, check_claim};
pub use finish_mkfs::{finish_mkfs, is_mkfs_under_way};
pub use give_up::give_up_journal;
pub(crate) use opening::{Opened, open};
pub use options::OpenOptions;
pub use repair::{apply_repair, can_be_repaired, mend_superblock, recover_only};
pub use survey::Survey;
