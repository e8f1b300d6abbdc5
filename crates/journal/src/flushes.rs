//! Flushes of one cache follow each other, and after one that failed none is believed.
//!
//! A flush that fails may lose any write that was not flushed, whoever's, and one that comes after it
//! may succeed all the same. So what needs a flush to be durable is done alone: the next to come
//! learns of the failure before it begins, and none comes between a write and the flush behind it.

use device::sync::Mutex;

use crate::{JournalError, Result};

/// The flushes of one device, or of several that share a cache. The lock is held during them.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Why one failed.
    failed: Mutex<Option<String>>,
}

impl Flushes {
    /// Runs `work`, which flushes the device or writes to it with a flush, while nobody else does.
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
