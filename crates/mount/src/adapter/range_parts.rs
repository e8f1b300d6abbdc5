//! Keeps the parts of changes of several ranges until the last one comes (`operations::ranges`).
//!
//! A program may end before it sends the last part, and nothing tells the volume. So the oldest changes go when there
//! are too many. A program whose change went gets `ESTALE`, and nothing was changed.

use std::sync::Arc;

use device::sync::Mutex;
use device::{RANGES_BYTES_MAX, RangePart};
use ext4::InodeNo;
use rustix::io::Errno;

/// Changes that are kept at the same time.
const CHANGE_COUNT_MAX: usize = 8;

type Id = [u8; 16];

/// The first parts of a change.
#[derive(Default)]
pub(super) struct Staged {
    ino: Option<InodeNo>,
    id: Id,
    part_count: u32,
    bytes: usize,
    ranges: Vec<(u64, Vec<u8>)>,
}

impl Staged {
    /// Their ranges.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.ranges.iter().map(|(offset, bytes)| (*offset, &bytes[..]))
    }
}

/// The parts of all changes, the oldest change first.
#[derive(Default)]
pub(super) struct RangeParts(Mutex<Vec<Arc<Staged>>>);

impl RangeParts {
    /// Takes a part that is not the last.
    pub(super) fn add(&self, ino: InodeNo, part: &RangePart<'_>) -> Result<(), Errno> {
        let mut changes = self.0.lock();
        let at = changes.iter().position(|staged| staged.is(ino, &part.id));
        let mut staged = match at {
            Some(at) => changes.remove(at),
            None => Arc::new(Staged { ino: Some(ino), id: part.id, ..Staged::default() }),
        };
        if part.number != staged.part_count {
            return Err(Errno::STALE);
        }
        // Shared only while a last part is served, which is the end of the change.
        let change = Arc::get_mut(&mut staged).ok_or(Errno::STALE)?;
        change.part_count += 1;
        for (offset, bytes) in &part.ranges {
            change.bytes += bytes.len();
            change.ranges.push((*offset, bytes.to_vec()));
        }
        if change.bytes > RANGES_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        if changes.len() >= CHANGE_COUNT_MAX {
            changes.remove(0);
        }
        changes.push(staged);
        Ok(())
    }

    /// The parts before this one, which is the last.
    pub(super) fn find(&self, ino: InodeNo, part: &RangePart<'_>) -> Result<Arc<Staged>, Errno> {
        let changes = self.0.lock();
        match changes.iter().find(|staged| staged.is(ino, &part.id)) {
            Some(staged) if staged.part_count == part.number => Ok(staged.clone()),
            None if part.number == 0 => Ok(Arc::default()),
            _ => Err(Errno::STALE),
        }
    }

    /// The change is made, or failed.
    pub(super) fn forget(&self, ino: InodeNo, id: &Id) {
        self.0.lock().retain(|staged| !staged.is(ino, id));
    }
}

impl Staged {
    fn is(&self, ino: InodeNo, id: &Id) -> bool {
        self.ino == Some(ino) && self.id == *id
    }
}
