//! `onejournal mkfs`: runs mke2fs with the sizes that OneJournal needs, and ends in a way that
//! survives a power cut.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use device::{BlockDevice, Disk};
use ext4::layout::superblock::MKFS_UNDER_WAY;
use host::{Access, Found, without_foreign_servers};
use rustix::fs::{OFlags, ftruncate};
use rustix::io::Errno;

use crate::journal_path::MIN_JOURNAL_BYTES;
use crate::new_file::{NewFile, is_same, remove_if_failed};
use crate::occupant::Occupant;
use crate::output::{complain, plain_path};
use crate::target::{ON_STDIN, REPLACED, cannot_start, in_sbin, on_stdin};
use crate::units::size;
use crate::verbs::own_journal::{self, Opened};
use crate::{CliError, MkfsArgs, Result, advice, mention, target};

/// Smallest volume with a journal of four regions.
const MIN_VOLUME_BYTES: u64 = 8 << 20;

pub fn run(args: &MkfsArgs) -> Result<u8> {
    check_sizes(args)?;
    let (made, asked) = prepare(args)?;
    let result = claim(args, &asked).and_then(|disk| with_journal(args, disk));
    say_what_was_made(args, &remove_if_failed(made.as_ref(), result)?);
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

/// Makes sure that the target exists and has a size. Returns the file if this call has made it, and
/// the attributes of the target, by which it is known again.
fn prepare(args: &MkfsArgs) -> Result<(Option<NewFile>, Metadata)> {
    let path = args.target.as_path();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let missing = || CliError::at(path, target::MISSING);
            let size = args.size.ok_or_else(missing)?;
            let made = NewFile::make(path, size, 0o666);
            let both = made.and_then(|made| made.metadata().map(|found| (Some(made), found)));
            both.map_err(|error| CliError::at(path, error))
        }
        Err(error) => Err(CliError::at(path, error)),
        Ok(found) if found.is_file() && found.len() == 0 => {
            let empty =
                "is empty; to make a volume of 256 MiB in it: onejournal mkfs --size 256M TARGET";
            let size = args.size.ok_or_else(|| CliError::at(path, empty))?;
            lengthen_empty(path, &found, size).map(|()| (None, found))
        }
        Ok(found) if found.is_file() || found.file_type().is_block_device() => Ok((None, found)),
        Ok(_) => Err(CliError::at(
            path,
            "is neither a file nor a block device: name a file or a block device",
        )),
    }
}

/// Gives an empty file its size. Another file, which the path may lead to by now, is not opened: to
/// open a tape or a watchdog does something.
fn lengthen_empty(path: &Path, asked: &Metadata, size: u64) -> Result<()> {
    let failed = |errno: Errno| CliError::at(path, io::Error::from(errno));
    let found = Found::at(path, OFlags::empty()).map_err(failed)?;
    let is_asked = (found.stat.st_dev, found.stat.st_ino) == (asked.dev(), asked.ino());
    if !is_asked || found.stat.st_size != 0 {
        return Err(CliError::at(path, REPLACED));
    }
    let file = found.open(OFlags::WRONLY).map_err(failed)?;
    ftruncate(file, size).map_err(failed)
}

/// Claims the target until the volume is made, checks that it may be overwritten, and gives a file
/// its size. `asked`: of the file or device that the target has to be.
fn claim(args: &MkfsArgs, asked: &Metadata) -> Result<Disk> {
    let path = args.target.as_path();
    let (disk, found) = open(args)?;
    if !is_same(&found, asked) {
        return Err(CliError::at(path, REPLACED));
    }
    let Some(size) = args.size.filter(|size| found.is_file() && found.len() != *size) else {
        return Ok(disk);
    };
    set_size(path, disk, size)?;
    match open(args)? {
        (disk, now) if is_same(&now, &found) => Ok(disk),
        _ => Err(CliError::at(path, REPLACED)),
    }
}

/// Opens the target, and checks that it may be overwritten.
fn open(args: &MkfsArgs) -> Result<(Disk, Metadata)> {
    let disk = target::open(&args.target, Access::ReadWrite)?;
    check_may_overwrite(args, &disk)?;
    let found = target::metadata(&args.target, &disk)?;
    Ok((disk, found))
}

/// Gives the open file another size. It has to be opened again then.
fn set_size(path: &Path, disk: Disk, size: u64) -> Result<()> {
    let file = disk.file().map_err(|error| CliError::at(path, error.source))?;
    file.set_len(size).map_err(|error| CliError::at(path, error))
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
        Some(Occupant::Unknown) if is_unused_device(path, disk)? => Ok(()),
        Some(found) => Err(CliError::at(path, found.refusal("onejournal mkfs --force"))),
    }
}

/// Whether `disk` is a block device on which wipefs, which knows many more signatures than
/// [`Occupant`], finds none: a new mapping of dm-crypt has random bytes. The bytes of a file
/// are always some program's.
fn is_unused_device(path: &Path, disk: &Disk) -> Result<bool> {
    if !target::metadata(path, disk)?.file_type().is_block_device() {
        return Ok(false);
    }
    let mut wipefs = in_sbin("wipefs");
    wipefs.args(["--no-act", "--noheadings", ON_STDIN]).stdin(on_stdin(path, disk)?);
    let found = wipefs.output();
    Ok(found.is_ok_and(|found| found.status.success() && found.stdout.is_empty()))
}

fn make(args: &MkfsArgs, disk: Disk, journal: Option<&Opened>) -> Result<Made> {
    disk.release_exclusive(); // mke2fs wants it
    // An old volume is given up only when mke2fs is there and can make a new one.
    mke2fs(args, &disk, &["-n"])?;
    ext4::begin_mkfs(&disk).map_err(|error| advice::at_volume(&args.target, &error))?;
    mke2fs(args, &disk, &[])?;
    // What mke2fs has made becomes a volume, which must be one that we can mount; while it is ours
    // alone.
    let device: Arc<dyn BlockDevice> = Arc::new(disk);
    let new = journal.map(|journal| &journal.new);
    let finished = ext4::finish_mkfs(&device, new)
        .and_then(|_| ext4::Survey::take(&device, new.map(|new| &new.medium)));
    let survey = finished.map_err(|error| match journal {
        Some(journal) => journal.failed(&args.target, &error),
        None => advice::at_volume(&args.target, &error),
    })?;
    let journal_bytes = survey.space.as_ref().map_or(0, journal::Space::len_bytes);
    Ok(Made { size_bytes: device.size_bytes(), journal_bytes, journal: None })
}

/// Runs mke2fs on the open target with these options. Prints what it says, unless that is to be
/// said again: a trial (`-n`) that succeeds is followed by the same without these options.
fn mke2fs(args: &MkfsArgs, disk: &Disk, options: &[&str]) -> Result<()> {
    let mut command = mke2fs_command(args, disk.size_bytes(), options);
    command.stdin(on_stdin(&args.target, disk)?);
    let ran = without_foreign_servers(|| command.output());
    let Output { status, stderr, .. } = ran.map_err(|error| cannot_start("mke2fs", &error))?;
    if !stderr.is_empty() && (!status.success() || options.is_empty()) {
        let shown = plain_path(&args.target);
        complain!("{}", String::from_utf8_lossy(&stderr).replace(ON_STDIN, &shown));
    }
    match status.success() {
        true => Ok(()),
        false => {
            Err(CliError::at(&args.target, "mke2fs could not make a volume; it says why above"))
        }
    }
}

/// The mke2fs command with `options` and the options that every volume needs.
fn mke2fs_command(args: &MkfsArgs, disk_bytes: u64, options: &[&str]) -> Command {
    let mut command = in_sbin("mke2fs");
    command.args(options).args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256"]);
    let under_way = String::from_utf8_lossy(&MKFS_UNDER_WAY);
    command.args(["-M", under_way.trim_end_matches('\0')]);
    let journal_bytes = match args.journal {
        Some(_) => None,
        None => args.journal_size.or_else(|| usual_journal_bytes(args.size.unwrap_or(disk_bytes))),
    };
    if let Some(bytes) = journal_bytes {
        command.args(["-J", &format!("size={}", bytes.div_ceil(1 << 20))]);
    }
    if let Some(label) = &args.label {
        command.args(["-L", label]);
    }
    if !rustix::process::geteuid().is_root() {
        command.args(["-E", "root_owner"]); // who makes the volume can use it
    }
    command.arg(ON_STDIN);
    if let Some(size) = args.size {
        command.arg(format!("{}", size / 4096));
    }
    command
}

/// The size of the journal in a volume of so many bytes, if mke2fs would make a smaller one: a
/// tenth. A database whose pages change again while the journal has them is written home less
/// often, and its changes are small. `None`: as mke2fs does.
fn usual_journal_bytes(volume_bytes: u64) -> Option<u64> {
    /// From this size on mke2fs makes journals of at least [`MOST`] bytes.
    const LARGE_BYTES: u64 = 16 << 30;
    const LEAST: u64 = 16 << 20;
    const MOST: u64 = 128 << 20;
    let tenth = (volume_bytes / 10).min(MOST);
    (volume_bytes < LARGE_BYTES && tenth >= LEAST).then_some(tenth)
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
    let shown = plain_path(path);
    let (place, how_to_mount) = match &made.journal {
        None => ("in it".into(), format!("onejournal mount {shown} DIR")),
        Some(journal) => (format!("on {}", plain_path(&journal.path)), journal.how_to_mount(path)),
    };
    mention!(
        "{shown}: a volume of {} with blocks of 4 KiB, its journal of {} {place}{label}; to mount \
         it: {how_to_mount}",
        size(made.size_bytes),
        size(made.journal_bytes)
    );
    if let Some(journal) = &made.journal {
        journal.warn(path);
    }
    if let Some(free_bytes) = missing_room(path) {
        complain!(
            "onejournal: {shown}: warning: it is sparse, and its file system has only {} free: a \
             write that finds no room there fails and stops the volume. To take the room now: \
             fallocate -l {} {shown}",
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    const CONTENT: [u8; 4096] = [7; 4096];

    fn args(target: &Path, size: u64, force: bool) -> MkfsArgs {
        let (journal, journal_size, label) = (None, None, None);
        let size = Some(size);
        MkfsArgs { size, journal, journal_size, label, force, target: target.to_owned() }
    }

    /// Two directories. In one of them, `other`, is a file of another user.
    fn two_directories() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for name in ["theirs", "other"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        fs::write(home.path().join("other/image"), CONTENT).unwrap();
        home
    }

    /// The path to `theirs/image` leads to `other/image` from now on.
    fn exchange(home: &Path) {
        fs::rename(home.join("theirs"), home.join("moved")).unwrap();
        symlink(home.join("other"), home.join("theirs")).unwrap();
    }

    fn is_kept(home: &Path) -> bool {
        fs::read(home.join("other/image")).is_ok_and(|found| found == CONTENT)
    }

    fn why<T>(result: Result<T>) -> String {
        result.err().expect("refused").text
    }

    #[test]
    fn the_journal_in_a_small_volume_is_a_tenth_of_it() {
        let mib = |volume: u64| usual_journal_bytes(volume << 20).map(|bytes| bytes >> 20);
        assert_eq!([64, 159].map(mib), [None; 2]);
        assert_eq!([160, 320, 1024].map(mib), [16, 32, 102].map(Some));
        assert_eq!([2048, 16_383].map(mib), [Some(128); 2]);
        assert_eq!(mib(16_384), None);
    }

    #[test]
    fn regression_only_the_file_that_was_checked_gets_another_size() {
        let home = two_directories();
        let target = home.path().join("theirs/image");
        fs::write(&target, [0; 4096]).unwrap();
        let args = args(&target, 8 << 20, false);
        let (disk, asked) = open(&args).unwrap();
        exchange(home.path());
        set_size(&target, disk, 8 << 20).unwrap();
        assert_eq!(fs::metadata(home.path().join("moved/image")).unwrap().len(), 8 << 20);
        // The file that the path leads to now is checked again.
        assert!(why(claim(&args, &asked)).contains("is not empty"));
        assert!(why(lengthen_empty(&target, &asked, 8 << 20)).contains(REPLACED));
        assert!(is_kept(home.path()));
        // An empty file is overwritten without being asked for, but not in place of another one.
        fs::write(home.path().join("other/image"), "").unwrap();
        assert!(why(lengthen_empty(&target, &asked, 8 << 20)).contains(REPLACED));
        assert_eq!(fs::metadata(home.path().join("other/image")).unwrap().len(), 0);
        // It is not even opened: a pipe without a reader cannot be.
        fs::remove_file(home.path().join("other/image")).unwrap();
        let pipe = home.path().join("other/image");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(why(lengthen_empty(&target, &asked, 8 << 20)).contains(REPLACED));
        fs::remove_file(&pipe).unwrap();
        fs::write(home.path().join("other/image"), [0; 4096]).unwrap();
        assert!(why(claim(&args, &asked)).contains(REPLACED));
        assert_eq!(fs::metadata(home.path().join("other/image")).unwrap().len(), 4096);
    }

    #[test]
    fn regression_a_file_that_was_made_and_exchanged_is_not_overwritten() {
        for force in [false, true] {
            let home = two_directories();
            let args = args(&home.path().join("theirs/image"), 8 << 20, force);
            let (made, asked) = prepare(&args).unwrap();
            assert!(made.is_some());
            exchange(home.path());
            let expected = if force { REPLACED } else { "is not empty" };
            let why = why(remove_if_failed(made.as_ref(), claim(&args, &asked)));
            assert!(why.contains(expected), "{why}");
            assert!(is_kept(home.path()) && !home.path().join("moved/image").exists());
        }
    }
}
