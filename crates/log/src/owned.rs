//! What belongs to one process. A process that was forked from it has a copy of its memory and shares its locks and
//! sockets, but has none of its threads: it would be taken for the other, by the others and by itself.

use std::mem;
use std::sync::Arc;

use device::ForkMark;

use crate::{LogError, Result};

/// Something that only the process that made it may use. A forked one gets an error, and dropping it does nothing there.
pub(crate) struct Owned<T> {
    /// `None` only while it is dropped.
    inner: Option<T>,
    mark: Arc<ForkMark>,
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: T, mark: Arc<ForkMark>) -> Owned<T> {
        Owned { inner: Some(inner), mark }
    }

    /// To use it.
    #[inline]
    pub(crate) fn get(&self) -> Result<&T> {
        if self.mark.is_ours() { Ok(self.look()) } else { Err(forked()) }
    }

    /// The same, for a change.
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        match &mut self.inner {
            Some(inner) if self.mark.is_ours() => Ok(inner),
            _ => Err(forked()),
        }
    }

    /// To look at what changes nothing and waits for nobody, in any process.
    #[inline]
    pub(crate) fn look(&self) -> &T {
        self.inner.as_ref().expect("until it is dropped")
    }

    /// To end it. `None` in a forked process.
    pub(crate) fn take(mut self) -> Option<T> {
        let inner = self.inner.take().expect("until it is dropped");
        if self.mark.is_ours() {
            return Some(inner);
        }
        mem::forget(inner);
        None
    }

    /// Something else of the same process.
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

fn forked() -> LogError {
    let what =
        "it was opened by the process that this one was forked from; open the log again here";
    LogError::Usage(what.into())
}
