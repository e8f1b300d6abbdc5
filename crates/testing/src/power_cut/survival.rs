//! What survives a power cut.

/// What a power cut leaves of the unflushed writes, and of the event in flight.
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
    /// Any subset of the sectors of each unflushed write and of the event in flight, chosen by the
    /// seed.
    Random(u64),
}

impl Survival {
    /// The four kinds that are not random.
    pub const EXTREMES: [Survival; 4] =
        [Survival::Nothing, Survival::Issued, Survival::InFlight, Survival::Everything];
}
