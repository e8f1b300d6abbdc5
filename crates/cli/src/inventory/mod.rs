//! Lists the mounted volumes and the logs that are in use on this machine.
//!
//! Nothing is locked or changed. A daemon that does not answer is waited for at most
//! [`ANSWER_LIMIT`].

mod answer;
mod ask;
mod detached;
mod files;
mod logs;
mod look_json;
mod mounts;
mod paths;

use std::time::Duration;

pub use answer::{Answer, MountState};
pub use ask::{AskArgs, Asker, Subject, ask_modes, ask_once, check_answers, run_ask};
pub use detached::{DetachedVolume, detached, look_for_detached};
pub use files::FileCounters;
pub use logs::{AskLogsArgs, Logs, SeenLog, SeenLogs, StreamCounters, run_ask_logs};
pub use mounts::{Mounts, SeenMount};

/// How long all answers together may take. A daemon may be stopped, or stuck in its disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long the processes that ask may take to start, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
