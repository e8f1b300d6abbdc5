//! `mount -o remount`: changes the options that the kernel decides, and refuses all others by name.
//!
//! mount(8) passes the options of the fstab entry as well. An option that the mount already has is
//! not a change.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Parser;
use mount::MountOptions;
use rustix::fs::StatVfsMountFlags;

use crate::advice::DAEMON_GONE;
use crate::counters::{parse, read_attribute};
use crate::inventory::{Subject, ask_once};
use crate::mount_options::{self, Parsed, split, words};
use crate::verbs::{sync, umount};
use crate::volumes::ServedVolume;
use crate::{Cli, CliError, Command, MountArgs, Result, aside, in_place};

/// The options that the kernel decides.
const CHANGEABLE: [&str; 8] = ["ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec"];

/// The options that the kernel shows for each FUSE mount in the mount table, from which mount(8)
/// takes options as well.
const SHOWN: [&str; 4] = ["user_id", "group_id", "max_read", "blksize"];

pub fn run(args: &MountArgs, is_aside: bool) -> Result<u8> {
    let (dir, options) = (args.dir.as_path(), &args.options);
    let Some(volume) = ServedVolume::mounted_on(dir)? else {
        return Err(umount::not_mounted(dir));
    };
    let Some(daemon) = volume.daemon()? else {
        return Err(CliError::at(dir, DAEMON_GONE));
    };
    if !is_aside {
        // An error if it does not answer.
        ask_once(dir, Subject::Mode)?;
        let (options, target) = (OsString::from(options.join(",")), args.target.as_os_str());
        let words: [&OsStr; 4] =
            ["mount".as_ref(), "-o".as_ref(), options.as_os_str(), "--".as_ref()];
        return aside::run(words.into_iter().chain([target, dir.as_os_str()]));
    }
    // As the mount table has it.
    let dir = volume.dirs.last().map_or(dir, PathBuf::as_path);
    let mut flags = flags_of(dir)?;
    let has_been = flags.read_only;
    let now = options_of(daemon.pid)?;
    let is_told = |option: &&str| *option != "remount" && !SHOWN.contains(&split(option).0);
    for option in words(options).filter(is_told) {
        if CHANGEABLE.contains(&split(option).0) {
            let mut parsed = Parsed::default();
            parsed.session.mount = flags;
            parsed.set(option)?;
            flags = parsed.session.mount;
        } else if !is_so(&now, option)? {
            let text =
                format!("option {option} cannot be changed by remount: unmount, and mount with it");
            return Err(CliError::usage(text));
        }
    }
    if has_been && !flags.read_only {
        make_writable(dir)?;
    }
    in_place::remount(dir, &flags).map_err(|error| CliError::new(error.to_string()))?;
    if flags.read_only {
        // Before Linux 6.18 the volume does not hear of it.
        sync::volume(dir)?;
    }
    Ok(0)
}

/// The flags of the mount.
fn flags_of(dir: &Path) -> Result<MountOptions> {
    let found = rustix::fs::statvfs(dir).map_err(|errno| CliError::at(dir, errno))?.f_flag;
    Ok(MountOptions {
        read_only: found.contains(StatVfsMountFlags::RDONLY),
        nosuid: found.contains(StatVfsMountFlags::NOSUID),
        nodev: found.contains(StatVfsMountFlags::NODEV),
        noexec: found.contains(StatVfsMountFlags::NOEXEC),
        ..MountOptions::default()
    })
}

/// The options with which the daemon serves.
fn options_of(pid: i32) -> Result<Parsed> {
    let failed = |why: String| CliError::new(format!("process {pid}: {why}"));
    let line = std::fs::read(format!("/proc/{pid}/cmdline"));
    let line = line.map_err(|error| failed(error.to_string()))?;
    let line = String::from_utf8_lossy(&line);
    let line = line.trim_end_matches('\0').split('\0');
    match Cli::try_parse_from(line).map(|cli| cli.command) {
        Ok(Command::Mount(args)) => mount_options::parse(&args.options),
        _ => Err(failed("it does not serve a mount".into())),
    }
}

/// Whether the option has this value already.
fn is_so(now: &Parsed, option: &str) -> Result<bool> {
    let mut with = now.clone();
    with.set(option)?;
    Ok(with == *now)
}

/// Has the daemon open a volume to write that was mounted read-only. A volume that an error has
/// made so stays read-only.
fn make_writable(dir: &Path) -> Result<()> {
    let stat = parse(dir, &read_attribute(dir, mount::STAT_XATTR)?)?;
    if stat["read_only"] != true {
        return Ok(());
    }
    let why = match stat["last_error"].as_str() {
        Some(error) => format!(
            "an error has made it read-only ({error}): unmount it, and run onejournal fsck on it"
        ),
        None => match read_attribute(dir, mount::MAKE_WRITABLE_XATTR)? {
            answer if answer == mount::WRITABLE => return Ok(()),
            why => {
                let target = stat["target"].as_str().unwrap_or("TARGET");
                format!("{}; then unmount it, and mount it again", why.replace("TARGET", target))
            }
        },
    };
    Err(CliError::at(dir, format!("cannot be made writable: {why}")))
}
