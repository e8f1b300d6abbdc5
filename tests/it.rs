//! End to end: the command, mounted volumes, the libraries for other programs, the judge.

// The name by which other programs know the crate, as the example that `fuse_library` runs does.
extern crate fuse as onejournal_fuse;

mod atomic;
mod beside_ext4;
mod capi;
mod claims;
mod commands;
mod containers;
mod counters;
mod docs;
mod foreground;
mod fsx;
mod fuse_library;
mod fuse_limits;
mod inode_flags;
mod install;
mod inventory;
mod journal_device;
mod journal_path;
mod judge;
mod judge_canaries;
mod killed;
mod log;
mod messages;
mod modes;
mod mount_helper;
mod mount_library;
mod no_xattr;
mod observe;
mod one_file;
mod order;
mod other_media;
mod page_cache;
mod posix;
mod probe;
mod probe_media;
mod refusal;
mod repair;
mod shrunk;
mod sqlite;
mod sqlite_volume;
mod support;
mod surroundings;
mod unmount;
mod untorn;
mod write_requests;
