//! What survives a power cut.

/// What a power cut leaves of the writes that were not flushed, and of the event that was in
/// flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// No unflushed write; the event in flight had no effect.
    Nothing,
    /// Every unflushed write; the event in flight had no effect.
    Issued,
    /// No unflushed write; the event in flight was completed.
    InFlight,
    /// Every unflushed write; the event in flight was completed.
    Everything,
    /// Of each unflushed write and of the event in flight any subset of sectors, by seed.
    Random(u64),
}

impl Survival {
    /// The four that are not random.
    pub const EXTREMES: [Survival; 4] =
        [Survival::Nothing, Survival::Issued, Survival::InFlight, Survival::Everything];
}
