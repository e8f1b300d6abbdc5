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
mod place;
mod raw;
mod recover;
mod repair;
mod survey;

pub use claim::{Claimant, check_claim};
pub use give_up::give_up_journal;
pub use mkfs::{begin_mkfs, finish_mkfs, is_mkfs_under_way};
pub(crate) use opening::{Opened, open};
pub use options::OpenOptions;
pub use place::uuid_text;
pub use repair::{apply_repair, can_be_repaired, mend_superblock, recover_only};
pub use survey::Survey;
