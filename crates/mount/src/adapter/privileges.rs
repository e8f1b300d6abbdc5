//! Which files are known to have no privilege that a write has to look for: file capabilities, and
//! a set-group-ID bit without the right of the group to execute.
//!
//! With `HANDLE_KILLPRIV_V2` the kernel leaves that to the file system. To look for the attribute
//! at each write would cost about as much as a small write.
//!
//! Lock: one mutex, taken before any lock of the volume by [`Privileges::check`] and after all of
//! them by [`Privileges::changed`]. So a check either sees the new privilege or its result is
//! forgotten again.

use std::collections::HashSet;

use device::sync::Mutex;
use ext4::InodeNo;

/// Results kept; reaching this, all are forgotten.
const KEPT_COUNT: usize = 65_536;

/// The files that were found to have none.
#[derive(Default)]
pub(crate) struct Privileges {
    without: Mutex<HashSet<InodeNo>>,
}

impl Privileges {
    /// Runs `has_none` unless the answer is known; remembers a yes.
    pub(crate) fn check<E>(
        &self,
        ino: InodeNo,
        has_none: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut without = self.without.lock();
        if without.contains(&ino) {
            return Ok(true);
        }
        let none = has_none()?;
        if none {
            if without.len() >= KEPT_COUNT {
                without.clear();
            }
            without.insert(ino);
        }
        Ok(none)
    }

    /// The file was, or may have been, given a privilege; or its number may be used again.
    pub(crate) fn changed(&self, ino: InodeNo) {
        self.without.lock().remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clean_bill_is_remembered() {
        let privileges = Privileges::default();
        let ino = InodeNo(12);
        assert_eq!(privileges.check(ino, || Ok::<_, ()>(false)), Ok(false));
        assert_eq!(privileges.check(ino, || Ok::<_, ()>(true)), Ok(true));
        assert_eq!(privileges.check(ino, || Err(())), Ok(true));
        privileges.changed(ino);
        assert_eq!(privileges.check(ino, || Err(())), Err(()));
    }
}
