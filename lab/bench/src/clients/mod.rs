//! Clients of the experiments. Each is a process of its own, so that a system can set its
//! environment ([`crate::systems::client`]). They read lines and answer them, or print JSON at
//! their end.

pub mod append;
pub mod cluster;
pub mod entries;
mod pace;
pub mod replay;
pub mod ring;
pub mod sqlite;
mod sqlite_options;
pub mod streams;

pub use sqlite_options::{SqliteAccess, SqliteOptions};

use std::time::{Duration, Instant};

/// Bytes that cannot be compressed.
fn random_bytes(len_bytes: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_do_not_compress() {
        let all = [random_bytes(10_000, 1), random_bytes(10_000, 2)].concat();
        assert!(lz4_flex::compress(&all).len() >= all.len());
    }
}
