//! Faults that tests switch on, and points at which a simulated process may crash.
//!
//! A *fault* is a mistake that the engine makes on purpose, so that a check can be seen to find it.
//! Each crate lists its own faults in its file `faults.rs`: an enum with one sentence for each, and
//! one line that makes the functions which its production code calls:
//!
//! ```
//! mod faults {
//!     /// Mistakes that tests switch on.
//!     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
//!     pub enum Fault {
//!         /// A commit is acknowledged before it is durable.
//!         CommitNotDurable,
//!     }
//!
//!     onejournal_fault::switches!(Fault);
//! }
//! use faults::Fault;
//!
//! // In production code, one line for a fault:
//! if !faults::is(Fault::CommitNotDurable) { /* wait for the medium */ }
//! // Where the engine starts a thread:
//! std::thread::spawn(faults::carry(|| { /* work */ }));
//! // In a test:
//! onejournal_fault::with(Fault::CommitNotDurable, || { /* the check must fail here */ });
//! ```
//!
//! A fault is on for the thread that called [`with`], until that call returns, and for the threads
//! that this thread started with `carry` meanwhile. Tests that run in parallel in one process do
//! not see each other's faults.
//!
//! Faults exist in builds with debug assertions ([`CAN_FAIL`]), with which tests are built. In a
//! release build `is` is the constant `false`, `carry` returns its argument, and the compiler
//! removes both; [`with`] panics.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   crash scope      crash points; which threads have which faults
//! ```

pub mod crash;
mod scope;

/// Whether faults can be switched on in this build. A constant of the profile and not a feature:
/// Cargo would switch a feature on for the product, too, when it builds it together with a test
/// that asks for it. It is no environment variable either: a daemon of root gets its environment
/// from its caller.
pub const CAN_FAIL: bool = cfg!(debug_assertions);

pub use scope::{Fault, Inherited, carry, for_process, inherited, is, is_any, with};

/// Defines `is`, `carry` and `crash_point` for a crate's production code. `$fault` is the crate's
/// enum of faults.
#[macro_export]
macro_rules! switches {
    ($fault:ty) => {
        /// Whether the fault is on for this thread. Constant in a build without faults.
        #[allow(dead_code)]
        #[inline(always)]
        pub(crate) fn is(fault: $fault) -> bool {
            $crate::CAN_FAIL && $crate::is(fault)
        }

        /// The body of a thread, which inherits the faults of the thread that starts it.
        #[allow(dead_code)]
        #[inline(always)]
        pub(crate) fn carry<T>(body: impl FnOnce() -> T) -> impl FnOnce() -> T {
            let inherited = $crate::CAN_FAIL.then($crate::inherited);
            move || match inherited {
                Some(faults) => faults.run(body),
                None => body(),
            }
        }

        /// A moment at which a simulated process may crash. Nothing in a build without faults.
        #[allow(dead_code)]
        #[inline(always)]
        pub(crate) fn crash_point() {
            if $crate::CAN_FAIL {
                $crate::crash::crash_point();
            }
        }
    };
}
