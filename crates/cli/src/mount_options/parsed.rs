//! What the options of a mount ask for, and which of them exclude each other.

use std::net::SocketAddr;
use std::time::Duration;

use device::Durability;
use ext4::{CheckpointPolicy, DataMode, DeltaCodec};
use mount::{IoUring, Order, SessionOptions};

use crate::error::{CliError, Result};
use crate::journal_path::JournalOptions;

/// The parsed options.
#[derive(Clone, PartialEq)]
pub struct Parsed {
    pub session: SessionOptions,
    pub data_mode: DataMode,
    /// Smaller writes go through the journal in `selective` mode.
    pub threshold_bytes: usize,
    pub commit_interval: Duration,
    /// The most memory that the daemon takes, if the user named a limit.
    pub memory_bytes: Option<u64>,
    pub region_count: usize,
    pub delta_codec: Option<DeltaCodec>,
    pub checkpoint: CheckpointPolicy,
    /// The weakest durability class that the media may have, if the user named one. Otherwise it is
    /// `power`.
    pub durability: Option<Durability>,
    pub take_over: bool,
    /// Seconds from one heartbeat of the volume's claim to the next; 0: no heartbeats.
    pub heartbeat_s: u32,
    /// The journal's own medium, if the user named one.
    pub journal: Option<JournalOptions>,
    /// Uses the journal in the volume, although the volume may have one elsewhere.
    pub journal_inside: bool,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    pub log_level: tracing::Level,
}

impl Default for Parsed {
    fn default() -> Parsed {
        Parsed {
            session: SessionOptions::default(),
            data_mode: DataMode::Auto,
            threshold_bytes: 4096,
            commit_interval: Duration::from_secs(5),
            memory_bytes: None,
            region_count: 4,
            delta_codec: None,
            checkpoint: CheckpointPolicy::Late,
            durability: None,
            take_over: false,
            heartbeat_s: 0,
            journal: None,
            journal_inside: false,
            metrics: None,
            log_level: tracing::Level::INFO,
        }
    }
}

impl Parsed {
    /// What is said of a journal that is not in the volume.
    pub fn journal_mut(&mut self) -> &mut JournalOptions {
        self.journal.get_or_insert_default()
    }

    /// Refuses options that cannot be had together.
    pub fn check_together(&self) -> Result<()> {
        if self.journal.as_ref().is_some_and(|journal| journal.path.as_os_str().is_empty()) {
            return Err(CliError::usage(
                "options journal_size and journal_latency need journal=PATH: add it, or leave \
                 them out",
            ));
        }
        let Some((one, other)) = self.exclusive() else { return Ok(()) };
        Err(CliError::usage(format!(
            "{one} cannot be had together with {other}: leave one of them out"
        )))
    }

    /// Two options that exclude each other.
    fn exclusive(&self) -> Option<(&'static str, String)> {
        let SessionOptions { mount, order, atomic_writes, .. } = &self.session;
        let is_sync = *order == Order::Sync;
        if self.journal.is_some() && self.journal_inside {
            Some(("journal=internal", "journal=PATH".into()))
        } else if is_sync && mount.io_uring == IoUring::On {
            Some(("order=sync", "io_uring=on".into()))
        } else if !atomic_writes {
            None
        } else if !self.data_mode.is_atomic() {
            Some(("atomic_writes", format!("data={}", self.data_mode.name())))
        } else if is_sync {
            Some(("atomic_writes", "order=sync".into()))
        } else {
            mount.read_only.then(|| ("atomic_writes", "ro".into()))
        }
    }
}
