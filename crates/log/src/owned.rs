//! A value that only the process that made it may use.
//!
//! A forked process has a copy of the memory and shares locks and sockets with its parent, but it
//! has none of the parent's threads. If it used the copy, other processes would take it for its
//! parent.

use std::mem;
use std::sync::Arc;

use device::ForkMark;

use crate::{LogError, Result};

/// A value that only the process that made it may use. A forked process gets an error, and a drop
/// there does nothing.
pub(crate) struct Owned<T> {
    /// `None` only while it is dropped.
    inner: Option<T>,
    mark: Arc<ForkMark>,
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: T, mark: Arc<ForkMark>) -> Owned<T> {
        Owned { inner: Some(inner), mark }
    }

    /// The value, for any use. An error in a forked process.
    #[inline]
    pub(crate) fn get(&self) -> Result<&T> {
        if self.mark.is_ours() { Ok(self.look()) } else { Err(LogError::WrongProcess) }
    }

    /// The value, for a change. An error in a forked process.
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        match &mut self.inner {
            Some(inner) if self.mark.is_ours() => Ok(inner),
            _ => Err(LogError::WrongProcess),
        }
    }

    /// Read-only access in any process. The caller must take no lock and not wait.
    #[inline]
    pub(crate) fn look(&self) -> &T {
        self.inner.as_ref().expect("until it is dropped")
    }

    /// Takes the value out, to close it. `None` in a forked process.
    pub(crate) fn take(mut self) -> Option<T> {
        let inner = self.inner.take().expect("until it is dropped");
        if self.mark.is_ours() {
            return Some(inner);
        }
        mem::forget(inner);
        None
    }

    /// Another value that belongs to the same process.
    pub(crate) fn with<U>(&self, inner: U) -> Owned<U> {
        Owned::new(inner, self.mark.clone())
    }
}

impl<T: Clone> Clone for Owned<T> {
    fn clone(&self) -> Owned<T> {
        self.with(self.look().clone())
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.mark.is_ours() {
            mem::forget(self.inner.take());
        }
    }
}
