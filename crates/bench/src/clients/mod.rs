//! The papers' workloads: each runs in a process of its own and prints what it measured as JSON.

pub mod append;
mod latency;
pub mod replay;
pub mod ring;
pub mod streams;

use std::time::Instant;

/// Bytes that do not compress.
fn random_bytes(len_bytes: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}
