//! What a mount says when it is asked.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::files::FileCounters;

/// How a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountState {
    ReadWrite,
    ReadOnly,
    /// Read-only after an error.
    Failed,
    /// Its daemon has ended without unmounting it.
    Dead,
    /// Its daemon does not answer.
    Silent,
    /// This user may not ask.
    Hidden,
    /// Too many mounts of its user have not answered.
    NotAsked,
}

impl MountState {
    pub fn name(self) -> &'static str {
        match self {
            MountState::ReadWrite => "read-write",
            MountState::ReadOnly => "read-only",
            MountState::Failed => "failed",
            MountState::Dead => "dead",
            MountState::Silent => "silent",
            MountState::Hidden => "hidden",
            MountState::NotAsked => "not-asked",
        }
    }
}

/// What a mount says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    pub state: MountState,
    pub pid: Option<i32>,
    /// Empty unless it told them.
    pub counters: Map<String, Value>,
    /// Why it did not, for a person.
    pub error: Option<String>,
    /// The files with the most bytes written, if they were asked for.
    pub files: Vec<FileCounters>,
    /// Where the volume is mounted, if that is the path that was asked, and this was asked for.
    pub mounted_on: Option<String>,
    /// Whether the volume is in an image, if that was asked for.
    pub is_image: bool,
}

impl Answer {
    /// An answer that has nothing but its state.
    pub fn of(state: MountState) -> Answer {
        Answer {
            state,
            pid: None,
            counters: Map::new(),
            error: None,
            files: Vec::new(),
            mounted_on: None,
            is_image: false,
        }
    }
}
