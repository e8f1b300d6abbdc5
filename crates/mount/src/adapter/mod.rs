//! Every FUSE request, turned into an operation of the volume.
//!
//! ```text
//!   serve          a request in, its answer out; FORGET and DESTROY, which are no operations
//!   operations/    one method of Call for each kind of request
//!   call           a request with what its operation needs
//!   state          Adapter: what all requests share
//!   atomic/  restarting  forgets  spending  privileges  range_parts  failure
//! ```
//!
//! Nothing is kept for an open file: OPEN and OPENDIR are answered ENOSYS, which makes the kernel
//! stop asking and keep its caches. CREATE is answered the same way, so that creating a file is one
//! MKNOD. (A mount that offers atomic writes needs OPEN, FLUSH and RELEASE: see `atomic` and
//! `operations::open`.) An inode number is its own node number, but for the root. The kernel's
//! lookup counts are the pins of the volume.

mod atomic;
mod call;
#[cfg(test)]
mod early_test;
mod failure;
mod flushes;
mod forgets;
#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod harness;
mod kernel_times;
mod lost_writes;
mod operations;
mod privileges;
mod range_parts;
mod restarting;
mod serve;
mod spending;
mod state;
mod writing;

pub(crate) use self::atomic::writes::AtomicWrites;
pub(crate) use self::state::Adapter;
