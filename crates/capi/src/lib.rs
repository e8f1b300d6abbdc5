//! The log service for C and C++. What each function does stands in `include/onejournal_log.h`.
//!
//! Three rules hold the border:
//!
//! 1. Every function runs inside [`error::guard`]: a panic becomes `ONEJOURNAL_EBUG`, an error its number and
//!    a message for the thread.
//! 2. A handle is a box that begins with a magic word ([`handle`]); streams and cursors keep their log alive, so
//!    handles may be closed in any order.
//! 3. Pointers become references in [`argument`] and [`handle`] only, checked for what can be checked; the rest is
//!    what the header asks of the caller.

mod argument;
mod cursor;
mod error;
mod handle;
mod log_calls;
mod options;
mod stream;
