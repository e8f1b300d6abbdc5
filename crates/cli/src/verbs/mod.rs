//! The subcommands, one module each.

pub mod dump;
pub mod fsck;
pub mod log;
pub mod logd;
pub mod ls;
pub mod mkfs;
pub mod mount;
pub mod own_journal;
pub mod probe;
pub mod remount;
pub mod restart;
pub mod set_journal;
pub mod set_mode;
pub mod stat;
pub mod sync;
pub mod top;
pub mod umount;
