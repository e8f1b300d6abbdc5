//! Makes the claim of this machine and process, which a volume stores while it is open.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ext4::{Claim, Claimant};
use host::{Living, Machine};

use crate::advice;
use crate::error::{CliError, Result};

/// The name of the option with which `mount -o` and `fsck --` take a volume over from another
/// machine.
pub const TAKE_OVER: &str = "takeover";

/// The claim of this process. `heartbeat_s`: seconds from one heartbeat to the next, 0 for none.
pub fn claimant(take_over: bool, heartbeat_s: u32) -> Result<Claimant> {
    let failed = |error| CliError::new(format!("giving a sign of life: {error}"));
    let living = Living::publish().map_err(failed)?;
    let machine = Machine::this();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let claim = Claim {
        machine_id: machine.id,
        boot_id: machine.boot,
        process: std::process::id(),
        heartbeat_s,
        living: living.name(),
        claimed_s: now.map_or(0, |now| now.as_secs()),
        sequence: 0,
        host_name: machine.name,
    };
    // It holds our own sign, so that this lasts as long as the volume is open. Where signs cannot
    // be looked for, the process may well live.
    let lives = move |name| name == living.name() || Living::is_seen(name).unwrap_or(true);
    Ok(Claimant { claim, lives: Arc::new(lives), wait: Arc::new(std::thread::sleep), take_over })
}

/// The error of opening the volume at `path`. `retry`: the command that takes it over.
pub fn failed(path: &Path, error: &ext4::Error, retry: &str) -> CliError {
    let advice = match error {
        ext4::Error::Claimed { may_take_over: true, .. } => format!(
            "; unmount it there; if it is not mounted there any more, or this is a copy: {retry}"
        ),
        ext4::Error::Claimed { .. } => "; unmount it there".into(),
        ext4::Error::Journal(error) => advice::of_journal(error).into(),
        _ => return advice::at_volume(path, error),
    };
    CliError::at(path, format!("{error}{advice}"))
}
