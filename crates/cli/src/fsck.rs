//! `onejournal fsck`: recovery, then e2fsck. Exit codes are those of fsck(8).

use std::path::Path;
use std::sync::Arc;

use device::{Access, BlockDevice};
use ext4::{OpenOptions, Survey, Volume};
use journal::{RecoverOptions, Recovery};

use crate::error::{CORRECTED, UNCORRECTED};
use crate::target::{cannot_start, e2fsprogs};
use crate::{CliError, FsckArgs, Result, target};

pub fn run(args: &FsckArgs) -> Result<u8> {
    if args.dry_run {
        return look(&args.target);
    }
    let recovered = recover(args)?;
    let checked = e2fsck(&args.target, if args.yes { "-y" } else { "-p" })?;
    Ok(if recovered { checked | CORRECTED } else { checked })
}

/// Recovers the volume if it was not closed. `true` if there was something to do.
fn recover(args: &FsckArgs) -> Result<bool> {
    let path = &args.target;
    let device: Arc<dyn BlockDevice> = Arc::new(target::open(path, Access::ReadWrite)?);
    let survey = Survey::take(&device).map_err(|error| CliError::at(path, error))?;
    if !survey.needs_recovery {
        return Ok(false);
    }
    let found = preview(&survey, &device, args.discard_damaged);
    let found = found.map_err(|error| damaged(path, &error))?;
    let options = OpenOptions {
        discard_damaged: args.discard_damaged,
        background: false,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, options).map_err(|error| CliError::at(path, error))?;
    volume.close().map_err(|error| CliError::at(path, error))?;
    println!("{}: recovered: {}", path.display(), describe(&found));
    Ok(true)
}

/// `-n`: says what recovery would do, or what e2fsck says of a volume that needs none.
fn look(path: &Path) -> Result<u8> {
    let device: Arc<dyn BlockDevice> = Arc::new(target::open(path, Access::ReadOnly)?);
    let survey = Survey::take(&device).map_err(|error| CliError::at(path, error))?;
    if !survey.needs_recovery {
        return e2fsck(path, "-n");
    }
    let found = preview(&survey, &device, false).map_err(|error| damaged(path, &error))?;
    println!("{}: not closed; recovery would bring home {}", path.display(), describe(&found));
    println!("{}: e2fsck can check it after recovery only", path.display());
    Ok(UNCORRECTED)
}

fn preview(
    survey: &Survey,
    device: &Arc<dyn BlockDevice>,
    discard_damaged: bool,
) -> journal::Result<Recovery> {
    let options = RecoverOptions { discard_damaged, dry_run: true };
    journal::recover(device, &survey.space, &survey.uuid, &options)
}

fn damaged(path: &Path, error: &journal::JournalError) -> CliError {
    CliError { code: UNCORRECTED, ..CliError::at(path, error) }
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
