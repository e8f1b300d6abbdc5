//! `onejournal fsck`: recovery, then e2fsck. Exit codes are those of fsck(8).
//!
//! e2fsck first only reads. If it finds something, it repairs a view of the volume, and its changes
//! are applied through our journal ([`ext4::apply_repair`]). If e2fsck wrote in place itself, a
//! power cut in the middle could leave a volume that no tool can repair.

use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use device::{BlockDevice, Disk};
use ext4::{Claimant, JournalChoice, OpenOptions, Survey, Volume};
use host::{Access, without_foreign_servers};
use journal::{Medium, RecoverOptions, Recovery};
use mount::MountedFile;

use super::view::{TemporaryDir, View, ViewFile};
use crate::claimant::{self, TAKE_OVER};
use crate::error::{CORRECTED, OPERATIONAL, UNCORRECTED};
use crate::journal_search::{Journals, Need};
use crate::mention;
use crate::output::plain_path;
use crate::target::{ON_STDIN, cannot_start, in_sbin, on_stdin};
use crate::units::size;
use crate::{CliError, FsckArgs, Result, advice, journal_path, journal_search, target};

pub fn run(args: FsckArgs) -> Result<u8> {
    let args = &FsckArgs { target: target::find(&args.target)?, ..args };
    if args.dry_run {
        return look(args);
    }
    // Claimed until all is done.
    let disk = Arc::new(target::open(&args.target, Access::ReadWrite)?);
    let give_up = args.journal_lost;
    let recovered = if give_up { give_up_journal(args, &disk)? } else { recover(args, &disk)? };
    let checked = if args.preen && !has_errors(&disk) { skip(args) } else { check(args, &disk)? };
    Ok(if recovered { checked | CORRECTED } else { checked })
}

/// Whether the volume is marked as damaged, or cannot be read well enough to know.
fn has_errors(disk: &Arc<Disk>) -> bool {
    let device: Arc<dyn BlockDevice> = disk.clone();
    Survey::take(&device, None).map_or(true, |survey| survey.has_errors)
}

/// `-p` of a volume that is not marked as damaged. Reading all of it would delay every boot.
fn skip(args: &FsckArgs) -> u8 {
    mention!(
        "{}: clean; not read through, as nothing is known against it",
        plain_path(&args.target)
    );
    0
}

/// Recovers the volume if it was not closed. `true` if it had to be recovered.
fn recover(args: &FsckArgs, disk: &Arc<Disk>) -> Result<bool> {
    let path = &args.target;
    let failed = |error: ext4::Error| refused(args, &error);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let claimant = claimant::claimant(args.takeover, 0)?;
    match ext4::check_claim(&device, &claimant) {
        Err(ext4::Error::Corrupt { .. }) if is_for_e2fsck(&device) => return Ok(false),
        checked => checked.map_err(failed)?,
    }
    let journal = open_journal(args, disk, Access::ReadWrite)?;
    let survey = Survey::take(&device, journal.as_ref()).map_err(failed)?;
    if survey.is_torn {
        ext4::mend_superblock(&device).map_err(failed)?;
        mention!("{}: its superblock was torn by a power cut, and is mended", plain_path(path));
    }
    if !survey.needs_recovery {
        return Ok(survey.is_torn);
    }
    let found = preview(path, &survey, &device, args.discard_damaged)?;
    let options = OpenOptions {
        discard_damaged: args.discard_damaged,
        background: false,
        journal: journal.map_or(JournalChoice::Inside, JournalChoice::On),
        claimant: Some(claimant),
        ..OpenOptions::default()
    };
    open_and_close(&device, &survey, &options).map_err(failed)?;
    mention!("{}: recovered: {}", plain_path(path), describe(&found));
    Ok(true)
}

fn open_and_close(
    device: &Arc<dyn BlockDevice>,
    survey: &Survey,
    options: &OpenOptions,
) -> ext4::Result<()> {
    if survey.has_errors {
        return ext4::recover_only(device, options);
    }
    match Volume::open(device.clone(), options.clone()) {
        Ok(volume) => volume.close(),
        // The journal was recovered; the damage is elsewhere, and e2fsck has to see to it.
        Err(ext4::Error::Corrupt { .. }) => ext4::recover_only(device, options),
        Err(error) => Err(error),
    }
}

/// Whether the volume is damaged outside of our journal.
fn is_for_e2fsck(device: &Arc<dyn BlockDevice>) -> bool {
    matches!(ext4::can_be_repaired(device), Ok(true))
}

/// Checks the claim before anything else: while another user changes the volume, no other statement
/// about it would be valid.
fn check_claim(args: &FsckArgs, device: &Arc<dyn BlockDevice>) -> Result<Claimant> {
    let claimant = claimant::claimant(args.takeover, 0)?;
    ext4::check_claim(device, &claimant).map_err(|error| refused(args, &error))?;
    Ok(claimant)
}

fn refused(args: &FsckArgs, error: &ext4::Error) -> CliError {
    let retry = format!("onejournal fsck --{TAKE_OVER} {}", plain_path(&args.target));
    claimant::failed(&args.target, error, &retry)
}

/// `--journal-lost`: e2fsck has to check the whole volume afterwards, so the result is always
/// `true`.
fn give_up_journal(args: &FsckArgs, disk: &Arc<Disk>) -> Result<bool> {
    let path = &args.target;
    let device: Arc<dyn BlockDevice> = disk.clone();
    let claimant = check_claim(args, &device)?;
    let given_up = ext4::give_up_journal(&device, Some(&claimant));
    given_up.map_err(|error| refused(args, &error))?;
    mention!("{}: its journal is given up, and the newest changes with it", plain_path(path));
    Ok(true)
}

/// `-n`: reports what recovery would do. For a volume that needs no recovery, reports what e2fsck
/// finds.
fn look(args: &FsckArgs) -> Result<u8> {
    let path = &args.target;
    let disk = Arc::new(target::open(path, Access::ReadOnly)?);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let journal = open_journal(args, &disk, Access::ReadOnly)?;
    let e2fsck = || e2fsck(Subject::Volume(&disk), path, "-n").map(|checked| checked.code);
    let survey = match Survey::take(&device, journal.as_ref()) {
        Err(ext4::Error::Corrupt { .. }) if is_for_e2fsck(&device) => return e2fsck(),
        survey => survey.map_err(|error| advice::at_volume(path, &error))?,
    };
    match (survey.is_torn, survey.needs_recovery) {
        (true, _) => mention!("{}: its superblock was torn by a power cut", plain_path(path)),
        (false, false) => return e2fsck(),
        (false, true) => {}
    }
    if !survey.needs_recovery {
        return Ok(UNCORRECTED);
    }
    let found = preview(path, &survey, &device, false)?;
    mention!("{}: not closed; recovery would bring home {}", plain_path(path), describe(&found));
    mention!("{}: e2fsck can check it after recovery only", plain_path(path));
    Ok(UNCORRECTED)
}

/// Opens the journal that recovery needs, if it is elsewhere.
fn open_journal(args: &FsckArgs, disk: &Arc<Disk>, access: Access) -> Result<Option<Medium>> {
    let device: Arc<dyn BlockDevice> = disk.clone();
    let given = args.journal.as_deref();
    let located = journal_search::locate(&args.target, &device, given, Need::Recovery)?;
    let open = |path: &Path| journal_path::open_as_it_is(path, access, &args.target, disk);
    located.as_deref().map(open).transpose()
}

fn preview(
    path: &Path,
    survey: &Survey,
    device: &Arc<dyn BlockDevice>,
    discard_damaged: bool,
) -> Result<Recovery> {
    let options = RecoverOptions { discard_damaged, dry_run: true, ..RecoverOptions::default() };
    let space = survey.space.as_ref().map_err(|error| advice::at_volume(path, error))?;
    journal::recover(device, space, &survey.uuid, &options).map_err(|error| {
        let what_to_do = advice::of_journal(&error);
        CliError { code: UNCORRECTED, ..CliError::at(path, format!("{error}{what_to_do}")) }
    })
}

fn describe(found: &Recovery) -> String {
    let mut text =
        format!("{} transactions, {} blocks", found.transaction_count, found.replayed_blocks);
    if found.discarded_damaged {
        text.push_str("; everything after the damaged transaction is given up");
    }
    text
}

/// Runs e2fsck on the volume, which has none of our feature bits.
fn check(args: &FsckArgs, disk: &Arc<Disk>) -> Result<u8> {
    let path = &args.target;
    let device: Arc<dyn BlockDevice> = disk.clone();
    let survey = Survey::take(&device, None);
    disk.release_exclusive(); // e2fsck wants the kernel's own claim of a block device
    if survey.is_ok_and(|survey| !survey.has_errors) {
        let found = e2fsck_captured(Subject::Volume(disk), path, "-n")?;
        if found.is_clean() {
            found.print();
            return Ok(0);
        }
    }
    repair(args, &device)
}

/// Runs e2fsck on a view of the volume, then applies its changes.
fn repair(args: &FsckArgs, device: &Arc<dyn BlockDevice>) -> Result<u8> {
    let (path, how) = (&args.target, if args.yes { "-y" } else { "-p" });
    let dir = TemporaryDir::new()?;
    let view = View::new(device.clone(), &dir).map_err(|error| CliError::at(&dir.0, error))?;
    let view = Arc::new(view);
    let file = MountedFile::mount(ViewFile(view.clone()), &dir.0).map_err(|error| {
        let why = "a repair that survives a power cut needs FUSE";
        let other = "A repair without FUSE, which a power cut may leave half done";
        CliError::at(path, format!("{why}: {error}. {other}: e2fsck -f {how} TARGET"))
    })?;
    let checked = e2fsck(Subject::View(&file.path()), path, how);
    file.end().map_err(|error| CliError::at(path, error))?;
    let checked = checked?;
    if let Some(bytes) = view.exceeded() {
        let parent = plain_path(dir.0.parent().unwrap_or(&dir.0));
        let how = if args.yes { "-y " } else { "" };
        let why = format!(
            "nothing was changed: the changes of the repair are kept in {parent} until all of them \
             are known, and take more than {}, half of the room there. Give a directory with more \
             room: TMPDIR=DIR onejournal fsck {how}TARGET",
            size(bytes)
        );
        return Err(CliError::at(path, why));
    }
    if checked.code >= OPERATIONAL {
        mention!("{}: nothing was changed", plain_path(path));
        return Ok(checked.code);
    }
    let repaired: Arc<dyn BlockDevice> = view.clone();
    let claim = claimant::claimant(args.takeover, 0)?.claim;
    let had_no_journal_elsewhere = matches!(ext4::recorded_journal(device), Ok(None));
    let applied = ext4::apply_repair(device, &repaired, &view.changed(), Some(&claim));
    applied.map_err(|error| advice::at_volume(path, &error))?;
    if !had_no_journal_elsewhere {
        mention_lost_journal(path, device);
    }
    Ok(checked.code)
}

/// If e2fsck has made the journal inode anew, the volume does not record its own journal any more.
fn mention_lost_journal(path: &Path, device: &Arc<dyn BlockDevice>) {
    let Ok(Survey { uuid, .. }) = Survey::take(device, None) else { return };
    if !matches!(ext4::recorded_journal(device), Ok(None)) {
        return;
    }
    for journal in Journals::look().of_volume(&uuid) {
        let (shown, journal) = (plain_path(path), plain_path(&journal));
        mention!(
            "{shown}: does not record a journal elsewhere any more, and {journal} is a journal of \
             it; to use it again: onejournal set-journal {shown} {journal}"
        );
    }
}

/// The output of e2fsck, and its exit code.
struct Checked {
    text: String,
    code: u8,
}

impl Checked {
    /// Whether e2fsck, which only read, found nothing. It also exits with 0 if the superblock's
    /// counts are wrong.
    fn is_clean(&self) -> bool {
        self.code == 0 && !self.text.contains("? no\n")
    }

    fn print(&self) {
        mention!("{}", self.text.trim_end());
    }
}

/// The volume or file that e2fsck is run on.
enum Subject<'a> {
    /// The open volume.
    Volume(&'a Disk),
    /// The file that is a view of it.
    View(&'a Path),
}

/// Runs e2fsck, and prints its output as if the path were `shown`.
fn e2fsck(subject: Subject, shown: &Path, how: &str) -> Result<Checked> {
    let checked = e2fsck_captured(subject, shown, how)?;
    checked.print();
    Ok(checked)
}

fn e2fsck_captured(subject: Subject, shown: &Path, how: &str) -> Result<Checked> {
    let (path, stdin) = match subject {
        Subject::Volume(disk) => (Path::new(ON_STDIN), on_stdin(shown, disk)?),
        Subject::View(path) => (path, Stdio::null()),
    };
    let mut command = in_sbin("e2fsck");
    // What it says is read.
    command.args(["-f", how]).arg(path).env("LC_ALL", "C").stdin(stdin);
    let output = without_foreign_servers(|| command.output());
    let Output { status, stdout, stderr } =
        output.map_err(|error| cannot_start("e2fsck", &error))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let code = code.ok_or_else(|| CliError::at(shown, format!("e2fsck was killed: {status}")))?;
    let text = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    let (path, shown) = (path.display().to_string(), plain_path(shown));
    Ok(Checked { text: text.replace(&path, &shown), code })
}
