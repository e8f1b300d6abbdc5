//! Bounds how many long answers of each user the daemon has in memory.

use std::collections::HashMap;

use device::sync::{Condvar, Mutex};
use host::Account;

/// How many requests with long answers are carried out for each user at a time. The daemon has each
/// answer in memory until it is sent.
const TURNS: usize = 4;

/// The users whose long answers are being sent, and how many each has.
#[derive(Default)]
pub(super) struct Turns {
    taken: Mutex<HashMap<Account, usize>>,
    released: Condvar,
}

/// The right to one long answer of a user, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    user: Account,
}

impl Turns {
    /// Waits until a user has fewer than [`TURNS`]. The wait ends, because the daemon disconnects a
    /// client that does not read.
    pub(super) fn take(&self, user: Account) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while taken.get(&user).is_some_and(|count| *count >= TURNS) {
            taken = self.released.wait(taken);
        }
        *taken.entry(user).or_default() += 1;
        Turn { turns: self, user }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock();
        if let Some(count) = taken.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.user);
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
        let (user, other) = (Account::own(), Account::UNKNOWN);
        let mut own: Vec<Turn<'_>> = (0..TURNS).map(|_| turns.take(user)).collect();
        drop(turns.take(other));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(turns.take(user)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "all are taken");
            own.pop();
        });
        drop(own);
        assert!(turns.taken.lock().is_empty());
    }
}
