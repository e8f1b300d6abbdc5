//! How systems are measured: they take turns, round by round, in an order that is shuffled from a
//! seed. The result of a system in a round is one sample. Rounds in which the machine did other
//! work are marked.

mod disturbance;
mod samples;
pub mod statistics;

pub use disturbance::Watch;
pub use samples::{Key, Metric, Samples};

use fastrand::Rng;

use crate::error::Result;
use crate::lab::interrupt;

/// Indices of `count` systems in an order for this round.
pub fn turns(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut order);
    order
}

/// Calls `each` for all `items`, in a shuffled order.
pub fn in_turns<T>(
    rng: &mut Rng,
    items: &mut [T],
    mut each: impl FnMut(usize, &mut T) -> Result<()>,
) -> Result<()> {
    for index in turns(rng, items.len()) {
        interrupt::check()?;
        each(index, &mut items[index])?;
    }
    Ok(())
}
