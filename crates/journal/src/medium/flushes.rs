//! Serializes the flushes of one cache, and remembers a failed one.
//!
//! A failed flush may lose any unflushed write of any thread, and a later flush may succeed
//! nevertheless. So work that needs a flush to become durable runs alone. The next caller learns of
//! the failure before it begins, and no other flush comes between a write and its own flush.

use device::sync::Mutex;

use crate::error::{JournalError, Result};

/// The flushes of one device, or of several devices that share a cache. The lock is held during a
/// flush.
#[derive(Default)]
pub(crate) struct Flushes {
    /// The reason of the flush that failed.
    failed: Mutex<Option<String>>,
}

impl Flushes {
    /// Runs `work`, which flushes the device or writes durably to it, while no other thread does.
    pub(crate) fn alone<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut failed = self.failed.lock();
        if let Some(why) = &*failed {
            return Err(JournalError::Aborted(why.clone()));
        }
        work().inspect_err(|error| *failed = Some(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_tried_after_a_failure() {
        let flushes = Flushes::default();
        assert_eq!(flushes.alone(|| Ok(5)).unwrap(), 5);
        let failure = flushes.alone(|| Err::<(), _>(JournalError::TooSmall("lost".into())));
        assert!(matches!(failure, Err(JournalError::TooSmall(_))));
        let error = flushes.alone(|| -> Result<()> { panic!("it is tried") }).unwrap_err();
        assert!(matches!(&error, JournalError::Aborted(why) if why.contains("lost")), "{error}");
    }
}
