//! How a service is made, and the settings that it keeps (`service.json`).

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::Durability;
use host::{Folder, Trust};

use crate::directory::incarnation::{is_uuid, random_name};
use crate::directory::room::Room;
use crate::format::group::GROUP_BYTES;
use crate::host::{DirectoryId, Settings};
use crate::media::files::{parse, within, write_whole};
use crate::words::CHUNK_COUNT_MAX;
use crate::{LogError, Result};

/// File of a service's settings.
pub(crate) const SETTINGS: &str = "service.json";
/// Version of the layout.
pub(crate) const FORMAT: u32 = 1;

/// How a log is made. An existing log keeps the options that it was made with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory on NVRAM for the lanes; many logs may share it. `None`: lanes are ordinary memory,
    /// and syncs share a group log on the directory's disk.
    pub nvram: Option<PathBuf>,
    /// What the NVRAM survives, if that is less than `power`. Refused without `nvram`.
    pub durability: Option<Durability>,
    /// Size of the pool in bytes (64 MiB).
    pub pool_bytes: u64,
    /// Size of a log file in bytes, at most (16 MiB).
    pub segment_bytes: u64,
    /// Size of the group log in bytes (16 MiB).
    pub group_bytes: u64,
    /// Directory for new shared memory, on a tmpfs (`/dev/shm`).
    pub memory: PathBuf,
    /// How long an append of this process waits for a chunk when the pool is full (10 s).
    pub full_wait: Duration,
    /// User and group that may own the log instead of this process's user, for example the owner of
    /// a database. What root makes of the log belongs to them. `None`: only this process's user.
    pub owner: Option<(u32, u32)>,
    /// Whether the program did not name the log, but found its path in a file that others may have
    /// written, for example in the attribute of a database. Such a log is not made. No link of an
    /// untrusted user leads to it, and its daemon belongs to root, this process's user or `owner`,
    /// and has a minute for all requests together.
    pub is_found: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            nvram: None,
            durability: None,
            pool_bytes: 64 << 20,
            segment_bytes: 16 << 20,
            group_bytes: 16 << 20,
            memory: PathBuf::from("/dev/shm"),
            full_wait: Duration::from_secs(10),
            owner: None,
            is_found: false,
        }
    }
}

/// Sizes that a pool may have, in bytes.
const POOL_BYTES: RangeInclusive<u64> = (1 << 20)..=(64 << 30);
/// At most this many earlier UUIDs are kept.
const COPIED_FROM_MAX: usize = 64;
/// Limits of a log file, in bytes. The rest of the last file is read when a stream is recovered.
const SEGMENT_BYTES: RangeInclusive<u64> = (64 << 10)..=(4 << 30);
/// Largest chunk, in bytes: that of the largest pool.
const CHUNK_BYTES_MAX: u64 = 128 << 20;

impl Options {
    /// The users whose directories and files this process trusts.
    pub(crate) fn trust(&self) -> Trust {
        self.owner.map_or(Trust::own(), |(uid, gid)| Trust::own_and(uid, gid))
    }

    /// Refuses options that contradict each other. Every way to open a log does so first, and a
    /// program may ask earlier.
    ///
    /// # Errors
    /// [`LogError::Usage`] for `durability` without `nvram`.
    pub fn check(&self) -> Result<()> {
        match (self.durability, &self.nvram) {
            (Some(class), None) => Err(LogError::Usage(format!(
                "durability={} without an NVRAM directory: durability says what that directory \
                 survives. Name the directory, too (nvram=DIR in a URI, --nvram DIR), or leave \
                 durability out: without NVRAM a log has the durability of its disk",
                class.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Data bytes of a chunk, and the number of chunks.
    fn chunks(&self) -> (u64, u32) {
        let count = (self.pool_bytes / (128 << 10)).clamp(16, 512);
        let chunk_bytes = self.pool_bytes / count / 4096 * 4096;
        (chunk_bytes, u32::try_from(count).expect("512 at most"))
    }

    /// The shared memory that a new service needs.
    pub(crate) fn room(&self) -> Room {
        Room::with_chunks(self.nvram.is_none().then(|| self.chunks()))
    }

    fn settings(&self, directory: DirectoryId) -> Result<Settings> {
        for (what, found, possible) in [
            ("a pool", self.pool_bytes, POOL_BYTES),
            ("a log file limit", self.segment_bytes, SEGMENT_BYTES),
            ("a group log", self.group_bytes, GROUP_BYTES),
        ] {
            if !possible.contains(&found) {
                let (least, most) = possible.into_inner();
                let text = format!("{what} of {found} bytes: it can have {least} to {most} bytes");
                return Err(LogError::Usage(text));
            }
        }
        let (chunk_bytes, chunk_count) = self.chunks();
        Ok(Settings {
            format: FORMAT,
            uuid: random_name()?,
            nvram: self.nvram.clone(),
            durability: self.durability.map(|class| class.name().to_owned()),
            chunk_bytes,
            chunk_count,
            segment_bytes: self.segment_bytes,
            group_bytes: self.group_bytes / 4096 * 4096,
            directory: Some(directory),
            copied_from: Vec::new(),
            nvram_name: None,
        })
    }
}

/// The settings of the service in `root`, made by `options` when there is none. The caller holds
/// the service's lock.
pub(crate) fn settings_of(root: &Folder, options: &Options) -> Result<Settings> {
    const NAME: &str = SETTINGS;
    let directory = DirectoryId::of(root)?;
    let settings = match root.read(NAME).map_err(within(root, NAME))? {
        Some(text) => {
            let file = root.at(NAME);
            let settings: Settings = parse(&file, &text)?;
            check_settings(&file, &settings)?;
            refuse_other_medium(root.path(), &settings, options)?;
            match name_copy(&settings, directory)? {
                Some(renamed) => renamed,
                None => return Ok(settings),
            }
        }
        None => options.settings(directory)?,
    };
    write_whole(root, NAME, &serde_json::to_vec_pretty(&settings).expect("plain data"))?;
    Ok(settings)
}

/// The settings of a service whose directory is a copy, with a UUID of its own. `None`: it is no
/// copy.
fn name_copy(settings: &Settings, directory: DirectoryId) -> Result<Option<Settings>> {
    if settings.directory.as_ref() == Some(&directory) {
        return Ok(None);
    }
    let mut copied_from = settings.copied_from.clone();
    copied_from.push(settings.uuid.clone());
    let surplus = copied_from.len().saturating_sub(COPIED_FROM_MAX);
    copied_from.drain(..surplus);
    let nvram_name = settings.nvram.as_ref().map(|_| settings.nvram_name().to_owned());
    let (uuid, directory) = (random_name()?, Some(directory));
    Ok(Some(Settings { uuid, directory, copied_from, nvram_name, ..settings.clone() }))
}

/// Whether a log may have chunks and a pool of these sizes.
pub(crate) fn are_sizes(chunk_bytes: u64, pool_bytes: u64) -> bool {
    (4096..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
        && chunk_bytes.is_multiple_of(4096)
        && (chunk_bytes..=CHUNK_COUNT_MAX as u64 * CHUNK_BYTES_MAX).contains(&pool_bytes)
}

fn check_settings(file: &Path, settings: &Settings) -> Result<()> {
    let file = file.display();
    if settings.format != FORMAT {
        let text = format!(
            "{file}: format {} is not known: open the log with the version of OneJournal that made \
             it",
            settings.format
        );
        return Err(LogError::Incompatible(text));
    }
    let is_sound = is_uuid(&settings.uuid)
        && is_uuid(settings.nvram_name())
        && (1..=CHUNK_COUNT_MAX as u64).contains(&u64::from(settings.chunk_count))
        && are_sizes(settings.chunk_bytes, settings.pool_bytes())
        && SEGMENT_BYTES.contains(&settings.segment_bytes)
        && GROUP_BYTES.contains(&settings.group_bytes);
    match is_sound {
        true => Ok(()),
        false => Err(LogError::Incompatible(format!(
            "{file} holds settings that cannot be: put the file back from a copy"
        ))),
    }
}

/// An error if `options` ask for NVRAM and the existing log is not on it.
fn refuse_other_medium(path: &Path, settings: &Settings, options: &Options) -> Result<()> {
    match &options.nvram {
        Some(nvram) if settings.nvram.as_ref() != Some(nvram) => {
            let found = match &settings.nvram {
                Some(other) => format!("on {}", other.display()),
                None => "in ordinary memory".into(),
            };
            let text = format!(
                "{} was made with its lanes {found}, and keeps them there: name the same NVRAM \
                 directory, or none",
                path.display()
            );
            Err(LogError::Incompatible(text))
        }
        _ => Ok(()),
    }
}
