//! What a durable write survives.

/// What a completed durable write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Only the process: the medium is ordinary memory (tmpfs, an in-memory device).
    Process,
    /// A reboot, not a power cut (reserved or battery-backed memory).
    Reboot,
    /// A power cut.
    Power,
}

impl Durability {
    /// The word shown to users: `process`, `reboot` or `power`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Process => "process",
            Durability::Reboot => "reboot",
            Durability::Power => "power",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Durability> {
        let all = [Durability::Process, Durability::Reboot, Durability::Power];
        all.into_iter().find(|class| class.name() == name)
    }
}
