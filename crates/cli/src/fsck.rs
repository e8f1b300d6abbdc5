//! `onejournal fsck`: recovery, then e2fsck. Exit codes are those of fsck(8).

use std::path::Path;
use std::sync::Arc;

use device::{Access, BlockDevice, Disk};
use ext4::{Claimant, OpenOptions, Survey, Volume};
use journal::{Medium, RecoverOptions, Recovery};

use crate::claimant::{self, TAKE_OVER};
use crate::error::{CORRECTED, UNCORRECTED};
use crate::target::{cannot_start, e2fsprogs};
use crate::{CliError, FsckArgs, Result, journal_path, target};

pub fn run(args: &FsckArgs) -> Result<u8> {
    if args.dry_run {
        return look(args);
    }
    // Claimed until e2fsck has ended; of a block device it wants the kernel's own claim.
    let disk = Arc::new(target::open(&args.target, Access::ReadWrite)?);
    let give_up = args.journal_lost;
    let recovered = if give_up { give_up_journal(args, &disk)? } else { recover(args, &disk)? };
    disk.release_exclusive();
    let checked = e2fsck(&args.target, if args.yes { "-y" } else { "-p" })?;
    drop(disk);
    Ok(if recovered { checked | CORRECTED } else { checked })
}

/// Recovers the volume if it was not closed. `true` if there was something to do.
fn recover(args: &FsckArgs, disk: &Arc<Disk>) -> Result<bool> {
    let path = &args.target;
    let device: Arc<dyn BlockDevice> = disk.clone();
    let claimant = check_claim(args, &device)?;
    let journal = open_journal(args, Access::ReadWrite)?;
    let survey = Survey::take(&device, journal.as_ref());
    let survey = survey.map_err(|error| CliError::at(path, error))?;
    if !survey.needs_recovery {
        return Ok(false);
    }
    let found = preview(path, &survey, &device, args.discard_damaged)?;
    let options = OpenOptions {
        discard_damaged: args.discard_damaged,
        background: false,
        journal,
        claimant: Some(claimant),
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, options).map_err(|error| refused(args, &error))?;
    volume.close().map_err(|error| CliError::at(path, error))?;
    println!("{}: recovered: {}", path.display(), describe(&found));
    Ok(true)
}

/// Before anything else is said of the volume: while it is changed elsewhere, nothing of it counts.
fn check_claim(args: &FsckArgs, device: &Arc<dyn BlockDevice>) -> Result<Claimant> {
    let claimant = claimant::claimant(args.takeover, 0)?;
    ext4::check_claim(device, &claimant).map_err(|error| refused(args, &error))?;
    Ok(claimant)
}

fn refused(args: &FsckArgs, error: &ext4::Error) -> CliError {
    let retry = format!("onejournal fsck --{TAKE_OVER} {}", args.target.display());
    claimant::failed(&args.target, error, &retry)
}

/// `--journal-lost`: e2fsck has to look at all of the volume afterwards. Always `true`.
fn give_up_journal(args: &FsckArgs, disk: &Arc<Disk>) -> Result<bool> {
    let path = &args.target;
    let device: Arc<dyn BlockDevice> = disk.clone();
    let claimant = check_claim(args, &device)?;
    let given_up = ext4::give_up_journal(&device, Some(&claimant));
    given_up.map_err(|error| refused(args, &error))?;
    println!("{}: its journal is given up, and the newest changes with it", path.display());
    Ok(true)
}

/// `-n`: says what recovery would do, or what e2fsck says of a volume that needs none.
fn look(args: &FsckArgs) -> Result<u8> {
    let path = &args.target;
    let device: Arc<dyn BlockDevice> = Arc::new(target::open(path, Access::ReadOnly)?);
    let journal = open_journal(args, Access::ReadOnly)?;
    let survey = Survey::take(&device, journal.as_ref());
    let survey = survey.map_err(|error| CliError::at(path, error))?;
    if !survey.needs_recovery {
        return e2fsck(path, "-n");
    }
    let found = preview(path, &survey, &device, false)?;
    println!("{}: not closed; recovery would bring home {}", path.display(), describe(&found));
    println!("{}: e2fsck can check it after recovery only", path.display());
    Ok(UNCORRECTED)
}

fn open_journal(args: &FsckArgs, access: Access) -> Result<Option<Medium>> {
    let open = |path| journal_path::open_as_it_is(path, access, &args.target);
    args.journal.as_deref().map(open).transpose()
}

fn preview(
    path: &Path,
    survey: &Survey,
    device: &Arc<dyn BlockDevice>,
    discard_damaged: bool,
) -> Result<Recovery> {
    let options = RecoverOptions { discard_damaged, dry_run: true };
    let space = survey.space.as_ref().map_err(|error| CliError::at(path, error))?;
    journal::recover(device, space, &survey.uuid, &options)
        .map_err(|error| CliError { code: UNCORRECTED, ..CliError::at(path, error) })
}

fn describe(found: &Recovery) -> String {
    let mut text =
        format!("{} transactions, {} blocks", found.transaction_count, found.replayed_blocks);
    if found.discarded_damaged {
        text.push_str("; what lay behind the damaged transaction is given up");
    }
    text
}

fn e2fsck(path: &Path, how: &str) -> Result<u8> {
    let status = e2fsprogs("e2fsck").args(["-f", how]).arg(path).status();
    let status = status.map_err(|error| cannot_start("e2fsck", &error))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| CliError::at(path, format!("e2fsck was killed: {status}")))
}
