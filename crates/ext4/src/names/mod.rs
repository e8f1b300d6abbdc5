//! Operations on names, and the freeing of inodes that have none.

mod evict;
mod lookup;
mod make;
mod read_dir;
mod rename;
mod unlink;
