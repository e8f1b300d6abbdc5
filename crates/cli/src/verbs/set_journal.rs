//! `onejournal set-journal`: gives a closed volume a journal of its own on another device, another
//! one, or none.
//!
//! The journal that the volume had until then is left as it is. The volume may be a copy, and the
//! original may need that journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use device::BlockDevice;
use ext4::uuid_text;
use host::Access;

use crate::output::plain_path;
use crate::units::size;
use crate::verbs::own_journal;
use crate::verbs::own_journal::Opened;
use crate::{Result, advice, claimant, journal_path, mention, target};

#[derive(Args)]
pub struct SetJournalArgs {
    /// Use the journal in the volume from now on
    #[arg(long, conflicts_with_all = ["journal_size", "force", "journal"])]
    internal: bool,
    /// Size of the journal (default: all of the device, at most 1G; a file that does not exist is
    /// made)
    #[arg(long, value_name = "SIZE", value_parser = journal_path::parse_journal_size)]
    journal_size: Option<u64>,
    /// Overwrite what the device holds
    #[arg(long)]
    force: bool,
    /// Block device or file that holds the volume, or its UUID=, LABEL= or PARTUUID=
    target: PathBuf,
    /// Block device or file for the journal
    #[arg(required_unless_present = "internal")]
    journal: Option<PathBuf>,
}

pub fn run(args: &SetJournalArgs) -> Result<u8> {
    let path = target::find(&args.target)?;
    let disk = Arc::new(target::open(&path, Access::ReadWrite)?);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let before = own_journal_of(&device);
    let open =
        |journal: &Path| own_journal::open(&path, &disk, journal, args.journal_size, args.force);
    let new = args.journal.as_deref().map(open).transpose()?;
    match change(&path, &device, new.as_ref()) {
        Ok(after) => {
            say_what_was_changed(&path, new.as_ref());
            if let Some(before) = before.filter(|before| Some(*before) != after) {
                let uuid = uuid_text(&before);
                mention!(
                    "{}: it needs journal {uuid} no more, which is left as it is",
                    plain_path(&path)
                );
            }
            Ok(0)
        }
        Err(error) => {
            if let Some(new) = new {
                new.take_back();
            }
            Err(error)
        }
    }
}

/// The UUID of the volume's own journal, if it records one elsewhere.
fn own_journal_of(device: &Arc<dyn BlockDevice>) -> Option<[u8; 16]> {
    let recorded = ext4::recorded_journal(device).ok().flatten();
    recorded.map(|recorded| recorded.journal_uuid)
}

fn change(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    new: Option<&Opened>,
) -> Result<Option<[u8; 16]>> {
    let claimant = claimant::claimant(false, 0)?;
    let changed = ext4::change_journal(device, new.map(|new| &new.new), Some(&claimant));
    changed.map_err(|error| match new {
        Some(new) => new.failed(path, &error),
        None => advice::at_volume(path, &error),
    })
}

fn say_what_was_changed(path: &Path, new: Option<&Opened>) {
    let shown = plain_path(path);
    let Some(new) = new else {
        return mention!("{shown}: its journal is in the volume from now on");
    };
    mention!(
        "{shown}: its journal of {} is on {} from now on; to mount it: {}",
        size(new.size_bytes()),
        plain_path(&new.path),
        new.how_to_mount(path)
    );
    new.warn(path);
}
