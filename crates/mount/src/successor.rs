//! Who goes on with a mount after a restart.

use std::io;

/// A program that can go on with a mount ([`crate::RESTART_XATTR`]).
pub trait Successor: Send + Sync {
    /// Whether it can, or why not, in words.
    fn check(&self) -> Result<(), String>;
    /// The volume is about to be handed over: what it needs of the open volume must stay open.
    fn keep(&self) -> io::Result<()>;
}
