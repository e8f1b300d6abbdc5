//! Takes turns between several ways to use a disk.
//!
//! The way that has used the least time so far is next. So all ways meet the same states of the
//! disk, each of them gets the same time, and a fast way gets more observations.

use std::time::Duration;

/// What one way has used, and what is left for it.
#[derive(Debug)]
struct Share {
    spent: Duration,
    has_begun: bool,
    left_count: u64,
}

/// Which way is next.
#[derive(Debug)]
pub(crate) struct Turns {
    shares: Vec<Share>,
}

impl Turns {
    /// One way for each of `counts`, which is how many turns it has at most.
    pub(crate) fn new(counts: impl IntoIterator<Item = u64>) -> Self {
        let share = |left_count| Share { spent: Duration::ZERO, has_begun: false, left_count };
        Turns { shares: counts.into_iter().map(share).collect() }
    }

    /// The way that is next; `None` if all have had their turns.
    pub(crate) fn next(&self) -> Option<usize> {
        let open = self.shares.iter().enumerate().filter(|(_, share)| share.left_count > 0);
        open.min_by_key(|(_, share)| (share.has_begun, share.spent)).map(|(index, _)| index)
    }

    /// The way has had a turn, which took `spent`.
    pub(crate) fn took(&mut self, index: usize, spent: Duration) {
        let share = &mut self.shares[index];
        assert!(share.left_count > 0, "way {index} has had all its turns");
        share.left_count -= 1;
        share.spent += spent;
        share.has_begun = true;
    }

    /// Whether every way has had a turn.
    pub(crate) fn have_all_begun(&self) -> bool {
        self.shares.iter().all(|share| share.has_begun || share.left_count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turns of each way when a turn of way `index` takes `costs[index]` and all take `total`.
    fn turns(counts: &[u64], costs: &[u64], total: u64) -> Vec<u64> {
        let mut turns = Turns::new(counts.iter().copied());
        let (mut taken, mut now) = (vec![0; costs.len()], 0);
        while let Some(index) = turns.next()
            && (now < total || !turns.have_all_begun())
        {
            turns.took(index, Duration::from_nanos(costs[index]));
            now += costs[index];
            taken[index] += 1;
        }
        taken
    }

    #[test]
    fn each_way_gets_the_same_time() {
        let many = u64::MAX;
        assert_eq!(turns(&[many, many, many], &[10, 100, 50], 3_000), [100, 10, 20]);
    }

    #[test]
    fn a_way_that_has_had_its_turns_leaves_the_time_to_the_others() {
        assert_eq!(turns(&[5, u64::MAX], &[10, 10], 1_000), [5, 95]);
        assert_eq!(turns(&[5, 7], &[1, 1], 1_000), [5, 7]);
    }

    #[test]
    fn each_way_has_one_turn_even_without_time() {
        assert_eq!(turns(&[9, 9, 9], &[0, 1_000, 3], 0), [1, 1, 1]);
        assert_eq!(turns(&[9, 0, 9], &[1, 1, 1], 0), [1, 0, 1]);
    }
}
