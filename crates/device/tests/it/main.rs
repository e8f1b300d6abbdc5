//! Disks and mapped memory in real surroundings: mounts, partitions, signals, forks.

#![allow(missing_docs)]

mod bus;
mod fork;
mod mounted;
mod partitions;
