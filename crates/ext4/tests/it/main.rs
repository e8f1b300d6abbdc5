//! The volume, unmounted: interop with e2fsprogs and the kernel, crashes, threads.

#![allow(missing_docs)]

mod accepted_writes;
mod allocation;
mod atomic_requests;
mod atomic_writes;
mod attributes;
mod block_maps;
mod claims;
mod common;
mod crafted;
mod crash;
mod damage;
mod declared;
mod directories;
mod elsewhere;
mod example;
mod fixed_inodes;
mod kernel;
mod kernel_names;
mod last_names;
mod name_threads;
mod opening;
mod own_journal;
mod repair;
mod support;
mod sync_flags;
mod tree_model;
mod unaligned_writers;
mod untorn;
mod xattrs;
mod zeroed_ranges;
