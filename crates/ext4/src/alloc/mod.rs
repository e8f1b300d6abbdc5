//! Allocating and freeing blocks and inodes.

mod bitmap;
mod blocks;
mod descriptors;
mod inodes;
#[cfg(test)]
mod tests;
