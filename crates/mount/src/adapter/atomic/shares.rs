//! A limit that users share, and none of them can use up.
//!
//! A user may take more while it has less than is left. So one user gets half of it, the next one
//! half of the rest, and there is always something for one more user until the limit is tiny. Root
//! and the user who mounted, who could end the mount as well, may take all of it. All subordinate
//! numbers of a user count as one user (`host::Account`).

use std::collections::HashMap;

use device::sync::Mutex;
use host::Account;

/// How much each user has of a limit. Lock: a leaf.
pub(super) struct Shares {
    limit: usize,
    taken: Mutex<HashMap<Account, usize>>,
}

impl Shares {
    pub(super) fn new(limit: usize) -> Shares {
        Shares { limit, taken: Mutex::default() }
    }

    /// Takes `count` more for a user. `false`: its share, or the limit, is used up.
    #[must_use]
    pub(super) fn take(&self, user: Account, count: usize) -> bool {
        if count == 0 {
            return true;
        }
        let mut taken = self.taken.lock();
        let Some(left) = (self.limit - taken.values().sum::<usize>()).checked_sub(count) else {
            return false;
        };
        let own = taken.get(&user).copied().unwrap_or(0) + count;
        // The last one may be taken.
        if !user.is_trusted() && own > left + 1 {
            return false;
        }
        taken.insert(user, own);
        true
    }

    /// Gives back what the user has taken before.
    pub(super) fn give_back(&self, user: Account, count: usize) {
        let mut taken = self.taken.lock();
        let own = taken.get(&user).copied().unwrap_or(0);
        assert!(own >= count, "{user:?} gives back {count} of {own}");
        match own - count {
            0 => drop(taken.remove(&user)),
            left => drop(taken.insert(user, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many the user can take, one by one.
    fn take_all(shares: &Shares, user: Account) -> usize {
        std::iter::from_fn(|| shares.take(user, 1).then_some(())).count()
    }

    fn strangers<const COUNT: usize>() -> [Account; COUNT] {
        let own = rustix::process::geteuid().as_raw();
        std::array::from_fn(|index| Account::of(own + 1 + index as u32))
    }

    #[test]
    fn each_user_leaves_something_for_the_next() {
        for (limit, expected) in
            [(14, [7, 4, 2, 1, 0]), (30, [15, 8, 4, 2, 1]), (2, [1, 1, 0, 0, 0]), (0, [0; 5])]
        {
            let (shares, users) = (Shares::new(limit), strangers::<5>());
            assert_eq!(users.map(|user| take_all(&shares, user)), expected, "of {limit}");
        }
    }

    #[test]
    fn a_share_that_is_given_back_can_be_taken() {
        let (shares, [one, other]) = (Shares::new(100), strangers());
        assert!(!shares.take(one, 51) && !shares.take(one, 101));
        assert!(shares.take(one, 50) && !shares.take(one, 1));
        assert!(shares.take(other, 25));
        shares.give_back(one, 50);
        assert!(!shares.take(one, 39) && shares.take(one, 38), "half of what the other leaves");
        // More than its share by now: it keeps that.
        assert!(shares.take(other, 6) && !shares.take(one, 1) && shares.take(one, 0));
        shares.give_back(other, 6);
        shares.give_back(one, 38);
        shares.give_back(other, 25);
        assert!(shares.taken.lock().is_empty());
    }

    #[test]
    fn root_and_the_user_who_mounted_may_take_all() {
        for user in [Account::ROOT, Account::own()] {
            assert_eq!(take_all(&Shares::new(14), user), 14);
        }
    }
}
