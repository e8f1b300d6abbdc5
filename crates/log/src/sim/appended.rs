//! A record as the workload appended it.

/// A record that was appended.
#[derive(Debug, Clone)]
pub(super) struct Appended {
    pub(super) lsn: u64,
    pub(super) end: u64,
    /// Its number in the order of all appends. It also chooses the bytes.
    pub(super) number: u64,
    pub(super) len_bytes: usize,
    pub(super) begun: u64,
    /// All before it was acknowledged when it was appended.
    pub(super) follows_durable: bool,
}

/// The bytes of record `number`.
pub(super) fn payload(number: u64, len_bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut bytes = vec![0; len_bytes];
    // Zeros too: a record may look like room that nothing was written to.
    match rng.u8(..8) {
        0 => {}
        1 => bytes.iter_mut().step_by(97).for_each(|byte| *byte = rng.u8(..)),
        _ => rng.fill(&mut bytes),
    }
    bytes
}
