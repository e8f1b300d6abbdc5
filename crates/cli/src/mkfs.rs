//! `onejournal mkfs`: runs mke2fs with the sizes that OneJournal needs, and ends in a way that
//! survives a power cut.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use device::{Access, BlockDevice, Disk};
use ext4::layout::superblock::MKFS_UNDER_WAY;

use crate::journal_path::MIN_JOURNAL_BYTES;
use crate::occupant::Occupant;
use crate::own_journal::{self, Opened};
use crate::target::{cannot_start, in_sbin};
use crate::units::size;
use crate::{CliError, MkfsArgs, Result, mention, target};

/// Smallest volume with a journal of four regions.
const MIN_VOLUME_BYTES: u64 = 8 << 20;

pub fn run(args: &MkfsArgs) -> Result<u8> {
    check_sizes(args)?;
    let made = prepare(args)?;
    let result = claim(args, made).and_then(|disk| with_journal(args, disk));
    if result.is_err() && made {
        let _ = std::fs::remove_file(&args.target);
    }
    say_what_was_made(args, &result?);
    Ok(0)
}

/// Makes the volume, with its own journal if it gets one elsewhere.
fn with_journal(args: &MkfsArgs, disk: Disk) -> Result<Made> {
    let Some(path) = &args.journal else { return make(args, disk, None) };
    let journal = own_journal::open(&args.target, &disk, path, args.journal_size, args.force)?;
    // Before anything is overwritten.
    let checked = journal.new.check().map_err(|error| journal.failed(&args.target, &error));
    match checked.and_then(|()| make(args, disk, Some(&journal))) {
        Ok(made) => Ok(Made { journal: Some(journal), ..made }),
        Err(error) => {
            journal.take_back();
            Err(error)
        }
    }
}

fn check_sizes(args: &MkfsArgs) -> Result<()> {
    if args.size.is_some_and(|size| size < MIN_VOLUME_BYTES) {
        return Err(CliError::usage("a volume needs at least 8M"));
    }
    if args.journal_size.is_some_and(|size| size < MIN_JOURNAL_BYTES) {
        return Err(CliError::usage("a journal needs at least 4M"));
    }
    Ok(())
}

/// Makes sure that the target exists and has a size. `true`: it was made by this call.
fn prepare(args: &MkfsArgs) -> Result<bool> {
    let path = args.target.as_path();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let missing = || CliError::at(path, target::MISSING);
            let size = args.size.ok_or_else(missing)?;
            set_size(path, true, size)?;
            Ok(true)
        }
        Err(error) => Err(CliError::at(path, error)),
        Ok(found) if found.is_file() && found.len() == 0 => {
            let empty =
                "is empty; to make a volume of 256 MiB in it: onejournal mkfs --size 256M TARGET";
            let size = args.size.ok_or_else(|| CliError::at(path, empty))?;
            set_size(path, false, size)?;
            Ok(false)
        }
        Ok(found) if found.is_file() || found.file_type().is_block_device() => Ok(false),
        Ok(_) => Err(CliError::at(
            path,
            "is neither a file nor a block device: name a file or a block device",
        )),
    }
}

/// Claims the target until the volume is made, checks that it may be overwritten, and gives a file
/// its size.
fn claim(args: &MkfsArgs, made: bool) -> Result<Disk> {
    let path = args.target.as_path();
    let disk = target::open(path, Access::ReadWrite)?;
    if made {
        return Ok(disk);
    }
    check_may_overwrite(args, &disk)?;
    match (args.size, std::fs::metadata(path)) {
        (Some(size), Ok(found)) if found.is_file() && found.len() != size => {
            set_size(path, false, size)?;
            drop(disk);
            target::open(path, Access::ReadWrite) // in its new size
        }
        _ => Ok(disk),
    }
}

fn set_size(path: &Path, create: bool, size: u64) -> Result<()> {
    let file: std::io::Result<File> = OpenOptions::new().write(true).create_new(create).open(path);
    let sized = file.and_then(|file| file.set_len(size));
    sized.map_err(|error| CliError::at(path, error))
}

/// Without `--force`, refuses a target that does not look empty. A target that an interrupted
/// `mkfs` has left is accepted.
fn check_may_overwrite(args: &MkfsArgs, disk: &Disk) -> Result<()> {
    let path = &args.target;
    if args.force || matches!(ext4::is_mkfs_under_way(disk), Ok(true)) {
        return Ok(());
    }
    let found = Occupant::of_head(disk).map_err(|error| CliError::at(path, error))?;
    match found {
        None => Ok(()),
        Some(Occupant::Unknown) if is_unused_device(path) => Ok(()),
        Some(found) => Err(CliError::at(path, found.refusal("onejournal mkfs --force"))),
    }
}

/// Whether `path` is a block device on which wipefs, which knows many more signatures than
/// [`Occupant`], finds none: a new mapping of dm-crypt has random bytes. The bytes of a file
/// are always some program's.
fn is_unused_device(path: &Path) -> bool {
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let look = || in_sbin("wipefs").args(["--no-act", "--noheadings"]).arg(path).output();
    is_device && look().is_ok_and(|found| found.status.success() && found.stdout.is_empty())
}

fn make(args: &MkfsArgs, disk: Disk, journal: Option<&Opened>) -> Result<Made> {
    disk.release_exclusive(); // mke2fs wants it
    // An old volume is given up only when mke2fs is there and can make a new one.
    let tried = mke2fs(args, &["-n"]).output().map_err(|error| cannot_start("mke2fs", &error))?;
    if !tried.status.success() {
        eprint!("{}", String::from_utf8_lossy(&tried.stderr));
        return Err(mke2fs_failed(args));
    }
    ext4::begin_mkfs(&disk).map_err(|error| CliError::at(&args.target, error))?;
    let status = mke2fs(args, &[]).status().map_err(|error| cannot_start("mke2fs", &error))?;
    if !status.success() {
        return Err(mke2fs_failed(args));
    }
    // What mke2fs has made becomes a volume, which must be one that we can mount; while it is ours alone.
    let device: Arc<dyn BlockDevice> = Arc::new(disk);
    let new = journal.map(|journal| &journal.new);
    let finished = ext4::finish_mkfs(&device, new)
        .and_then(|_| ext4::Survey::take(&device, new.map(|new| &new.medium)));
    let survey = finished.map_err(|error| match journal {
        Some(journal) => journal.failed(&args.target, &error),
        None => CliError::at(&args.target, error),
    })?;
    let journal_bytes = survey.space.as_ref().map_or(0, journal::Space::len_bytes);
    Ok(Made { size_bytes: device.size_bytes(), journal_bytes, journal: None })
}

/// mke2fs with these options and those that every volume needs.
fn mke2fs(args: &MkfsArgs, options: &[&str]) -> Command {
    let mut command = in_sbin("mke2fs");
    command.args(options).args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256"]);
    let under_way = String::from_utf8_lossy(&MKFS_UNDER_WAY);
    command.args(["-M", under_way.trim_end_matches('\0')]);
    if let (Some(bytes), None) = (args.journal_size, &args.journal) {
        command.args(["-J", &format!("size={}", bytes.div_ceil(1 << 20))]);
    }
    if let Some(label) = &args.label {
        command.args(["-L", label]);
    }
    if !rustix::process::geteuid().is_root() {
        command.args(["-E", "root_owner"]); // who makes the volume can use it
    }
    command.arg(&args.target);
    if let Some(size) = args.size {
        command.arg(format!("{}", size / 4096));
    }
    command
}

fn mke2fs_failed(args: &MkfsArgs) -> CliError {
    CliError::at(&args.target, "mke2fs could not make a volume; it says why above")
}

/// A volume.
struct Made {
    size_bytes: u64,
    journal_bytes: u64,
    /// Its own journal, if that is elsewhere.
    journal: Option<Opened>,
}

/// Prints what was made, and what to do with it. Warns of a sparse image that its file system could
/// not hold in full.
fn say_what_was_made(args: &MkfsArgs, made: &Made) {
    let path = args.target.as_path();
    let label = args.label.as_ref().map(|label| format!(", label {label}")).unwrap_or_default();
    let shown = path.display();
    let (place, how_to_mount) = match &made.journal {
        None => ("in it".into(), format!("onejournal mount {shown} DIR")),
        Some(journal) => (format!("on {}", journal.path.display()), journal.how_to_mount(path)),
    };
    mention!(
        "{shown}: a volume of {} with blocks of 4 KiB, its journal of {} {place}{label}; to mount it: {how_to_mount}",
        size(made.size_bytes),
        size(made.journal_bytes)
    );
    if let Some(journal) = &made.journal {
        journal.warn(path);
    }
    if let Some(free_bytes) = missing_room(path) {
        eprintln!(
            "onejournal: {shown}: warning: it is sparse, and its file system has only {} free: a write that finds no room \
             there fails and stops the volume. To take the room now: fallocate -l {} {shown}",
            size(free_bytes),
            made.size_bytes
        );
    }
}

/// The free bytes of the file system of an image, if they are less than the image still needs.
fn missing_room(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let room = rustix::fs::statvfs(path).ok()?;
    let free_bytes = room.f_bavail * room.f_frsize;
    let needed_bytes = found.len().saturating_sub(found.blocks() * 512);
    (free_bytes < needed_bytes).then_some(free_bytes)
}
