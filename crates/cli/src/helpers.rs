//! The helpers that mount(8) and fsck(8) start for a type of file system: `mount.onejournal`,
//! `fsck.onejournal`, and the same for the types that a mount table shows. They are links to this
//! command, which recognizes them by the name that it was started with. umount(8) needs no helper,
//! because umount(2) returns when the volume is closed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::output::{complain, plain_path, print_usage};
use crate::verbs::{fsck, mount};
use crate::{CliError, FsckArgs, MountArgs, Result, error, mention, mount_options};

/// The types that a helper is started for.
const TYPES: [&str; 3] = ["onejournal", "fuse.onejournal", "fuseblk.onejournal"];

/// Exit codes of mount(8).
const MOUNT_USAGE: u8 = 1;
const MOUNT_FAILED: u8 = 32;

/// `mount.onejournal`, as mount(8) starts it
#[derive(Parser)]
#[command(name = "mount.onejournal", version, max_term_width = 100)]
pub struct MountHelper {
    /// Leave unknown options out
    #[arg(short = 's')]
    sloppy: bool,
    /// Do all but mount
    #[arg(short = 'f')]
    fake: bool,
    /// For mount(8): it writes no /etc/mtab
    #[arg(short = 'n')]
    _no_mtab: bool,
    /// Say what is mounted
    #[arg(short = 'v')]
    verbose: bool,
    /// Mount in this mount namespace, a file of /proc
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
    /// Mount options: those of `onejournal mount` (`-o help` shows them) and those of /etc/fstab,
    /// such as defaults, noauto, nofail, _netdev and x-*. With remount, the options of a mounted
    /// volume change
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// For mount(8): the type
    #[arg(short = 't', value_name = "TYPE")]
    _kind: Option<String>,
    /// Block device or file that holds the volume, or its UUID=, LABEL= or PARTUUID=
    target: PathBuf,
    /// Directory to mount it on
    dir: PathBuf,
}

/// `fsck.onejournal`, as fsck(8) starts it
///
/// Exit codes are those of fsck(8): 0 clean, 1 recovered or errors corrected, 4 errors left, a
/// damaged journal, or with -n a volume that was not closed, 8 operational error, 16 usage error.
#[derive(Parser)]
#[command(name = "fsck.onejournal", version, max_term_width = 100)]
pub struct FsckHelper {
    /// Recover; check only a volume that is marked as damaged, or with -f. -a means the same
    #[arg(short = 'p', visible_short_alias = 'a', conflicts_with_all = ["dry_run", "yes"])]
    preen: bool,
    /// Change nothing: say what recovery would do, check what can be checked
    #[arg(short = 'n')]
    dry_run: bool,
    /// Answer yes to all questions of e2fsck
    #[arg(short = 'y', conflicts_with = "dry_run")]
    yes: bool,
    /// Check all, also with -p
    #[arg(short = 'f')]
    force: bool,
    /// For fsck(8): shows progress on a descriptor; there is none
    #[arg(short = 'C', value_name = "DESCRIPTOR")]
    _progress: Option<u32>,
    /// For fsck(8): no effect
    #[arg(short = 'v')]
    _verbose: bool,
    #[arg(short = 'T', hide = true)]
    _no_title: bool,
    #[arg(short = 'l', hide = true)]
    _lock: bool,
    #[arg(short = 'M', hide = true)]
    _skip_mounted: bool,
    #[arg(short = 'r', hide = true)]
    _report: bool,
    /// Block device or file that holds the volume, or its UUID=, LABEL= or PARTUUID=
    target: PathBuf,
}

/// Runs the helper that the command was started as, and returns the exit code. `None`: it was not
/// started as a helper.
pub fn run() -> Option<u8> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    let name = Path::new(&name).file_name()?.to_str()?;
    let (command, kind) = name.split_once('.')?;
    if !TYPES.contains(&kind) {
        return None;
    }
    Some(match command {
        "mount" => ended(name, mount(arguments), mount_code),
        "fsck" => ended(name, fsck(arguments), |code| code),
        _ => return None,
    })
}

fn ended(name: &str, result: Result<u8>, translate: fn(u8) -> u8) -> u8 {
    translate(result.unwrap_or_else(|error| {
        complain!("{name}: {error}");
        error.code
    }))
}

/// The exit code of mount(8) for an exit code of fsck(8), which the commands use.
fn mount_code(code: u8) -> u8 {
    match code {
        0 => 0,
        error::USAGE => MOUNT_USAGE,
        _ => MOUNT_FAILED,
    }
}

/// Parses the arguments. `Err`: the exit code after help or a usage error, which was printed.
fn parse<Arguments: Parser>(
    arguments: impl Iterator<Item = OsString>,
) -> std::result::Result<Arguments, u8> {
    let name = Arguments::command().get_name().to_owned();
    Arguments::try_parse_from(std::iter::once(name.into()).chain(arguments)).map_err(print_usage)
}

fn mount(arguments: impl Iterator<Item = OsString>) -> Result<u8> {
    let mut helper: MountHelper = match parse(arguments) {
        Ok(helper) => helper,
        Err(code) => return Ok(code),
    };
    if helper.sloppy {
        helper.options.retain(|option| mount_options::is_known(option));
    }
    let what = format!("{} on {}", plain_path(&helper.target), plain_path(&helper.dir));
    if helper.fake {
        mount_options::parse(&helper.options)?;
    } else {
        enter(helper.namespace.as_deref())?;
        let MountHelper { options, target, dir, .. } = helper;
        let args =
            MountArgs { foreground: false, options, announce: false, resume: false, target, dir };
        let code = mount::run(&args, false)?;
        if code != 0 {
            return Ok(code);
        }
    }
    if helper.verbose {
        mention!("mounted {what}");
    }
    Ok(0)
}

fn fsck(arguments: impl Iterator<Item = OsString>) -> Result<u8> {
    let helper: FsckHelper = match parse(arguments) {
        Ok(helper) => helper,
        Err(code) => return Ok(code),
    };
    fsck::run(FsckArgs {
        dry_run: helper.dry_run,
        preen: helper.preen && !helper.force,
        yes: helper.yes,
        discard_damaged: false,
        journal: None,
        takeover: false,
        journal_lost: false,
        target: helper.target,
    })
}

/// Continues in another mount namespace.
fn enter(namespace: Option<&Path>) -> Result<()> {
    let Some(path) = namespace else { return Ok(()) };
    let file = std::fs::File::open(path).map_err(|error| CliError::at(path, error))?;
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Mount))
        .map_err(|errno| CliError::at(path, errno))
}
