//! The log service from outside: embedded and served, several processes, users.

#![allow(missing_docs)]

mod clocks;
mod common;
mod daemon;
mod descriptors;
mod embedded;
mod example;
mod incarnations;
mod kills;
mod lost_memory;
mod moved;
mod orphans;
mod planted;
mod processes;
mod readers;
mod removed_memory;
mod stopped;
mod users;
