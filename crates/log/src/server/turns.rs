//! Bounds how many long answers of each user the daemon has in memory.

use std::collections::HashMap;

use device::sync::{Condvar, Mutex};

/// How many requests with long answers are carried out for each user at a time. The daemon has each
/// answer in memory until it is sent.
const TURNS: usize = 4;

/// The users whose long answers are being sent, and how many each has.
#[derive(Default)]
pub(super) struct Turns {
    taken: Mutex<HashMap<u32, usize>>,
    released: Condvar,
}

/// The right to one long answer of a user, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    uid: u32,
}

impl Turns {
    /// Waits until a user has fewer than [`TURNS`]. The wait ends, because the daemon disconnects a
    /// client that does not read.
    pub(super) fn take(&self, uid: u32) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while taken.get(&uid).is_some_and(|count| *count >= TURNS) {
            taken = self.released.wait(taken);
        }
        *taken.entry(uid).or_default() += 1;
        Turn { turns: self, uid }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
        self.turns.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_user_waits_for_its_own_long_answers() {
        let turns = Turns::default();
        let mut own: Vec<Turn<'_>> = (0..TURNS).map(|_| turns.take(7)).collect();
        drop(turns.take(8));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(turns.take(7)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "all are taken");
            own.pop();
        });
        drop(own);
        assert!(turns.taken.lock().is_empty());
    }
}
