//! Inodes: their bytes and how they are read.

mod bytes;
mod read;
mod time;

pub(crate) use bytes::{Inode, SET_GROUP_ID, flags};
pub(crate) use read::{inode_place, read_inode};
