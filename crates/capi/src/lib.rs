//! The log service for C and C++: `libonejournal_log.so` and `onejournal_log.h`.
//!
//! # COMPILING
//!
//! `cargo build --release -p onejournal-capi` makes the library. A program includes
//! `onejournal_log.h` and is linked with `-lonejournal_log`; where OneJournal is installed,
//! `pkg-config --cflags --libs onejournal` gives both.
//!
//! # LOADING
//!
//! The library needs no initialization. Its SONAME is `libonejournal_log.so.0`.
//!
//! # USING
//!
//! `examples/append.c` is a whole program: it opens a log and a stream, appends, syncs, and reads
//! the records back. `include/onejournal_log.h` says what each function does; `docs/how-to/c.md` is
//! the guide.
//!
//! # NOTES
//!
//! Three rules hold at the border between C and Rust:
//!
//! 1. Every function runs inside `error::guard`. A panic becomes `ONEJOURNAL_EBUG`. An error
//!    becomes its number, and its message is kept for the thread.
//! 2. A handle is a box that begins with a magic word (`handle`). Streams and cursors keep their
//!    log alive, so handles may be closed in any order.
//! 3. Pointers become references only in `argument` and `handle`. These check what can be
//!    checked; the header asks the caller for the rest.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   log_calls          the functions that take a log
//!   stream             the functions that take a stream
//!   cursor options     the functions that take a cursor; the options of a log
//!   argument handle    what comes from C, and what C holds
//!   error
//! ```

mod argument;
mod cursor;
mod error;
mod handle;
mod log_calls;
mod options;
mod stream;
