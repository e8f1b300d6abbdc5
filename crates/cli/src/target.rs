//! Opens the device or file that a command works on, and starts the programs of e2fsprogs.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use device::{DeviceError, Disk};
use host::{Access, Trust};

use crate::error::{CliError, Result};
use crate::namespaces::TRY_EVERY;
use crate::output::plain_path;
use crate::volumes::{self, HELD_PATIENCE, ServedVolume};

/// The message for a target that does not exist.
pub const MISSING: &str =
    "does not exist; to make a volume of 256 MiB there: onejournal mkfs --size 256M TARGET";

/// The message for a path that leads to another file than a moment ago.
pub const REPLACED: &str = "was replaced while it was opened; try again";

/// The path of what [`on_stdin`] gives to a program.
pub const ON_STDIN: &str = "/proc/self/fd/0";

/// A daemon that was killed ends within this time, unless its device is stuck.
const DYING_PATIENCE: Duration = Duration::from_secs(5);

/// Why a target could not be opened.
pub struct Refusal {
    pub error: CliError,
    /// Whether another user has it.
    pub in_use: bool,
    /// Whether a device, or the file system of an image, takes no writes.
    pub is_write_protected: bool,
}

impl Refusal {
    fn of(path: &Path, access: Access, error: DeviceError) -> Refusal {
        Refusal {
            in_use: error.source.kind() == io::ErrorKind::ResourceBusy,
            is_write_protected: error.source.kind() == io::ErrorKind::ReadOnlyFilesystem,
            error: match error.source.kind() {
                io::ErrorKind::NotFound => CliError::at(path, MISSING),
                io::ErrorKind::PermissionDenied => {
                    let need = if access == Access::ReadOnly { "read" } else { "read and write" };
                    let error = opening(error);
                    let text =
                        format!("{error}; the user who runs this has to be allowed to {need} it");
                    CliError { text, ..error }
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    let protection = if path.is_file() {
                        "the file system of the image has to be mounted writable".into()
                    } else {
                        format!(
                            "take the write protection off: blockdev --setrw {}",
                            plain_path(path)
                        )
                    };
                    CliError::new(format!("{}; {protection}", opening(error)))
                }
                _ if error.is_held_by_kernel() => held(path, error),
                _ => opening(error),
            },
        }
    }
}

/// The error of a disk that a file system has which is perhaps mounted nowhere.
fn held(path: &Path, error: DeviceError) -> CliError {
    let volume = ServedVolume::on_target(path).ok().flatten();
    let volume = volume.filter(|volume| volume.holders().is_empty());
    let Some(users) = volume.and_then(|volume| volume.users()) else { return opening(error) };
    CliError::at(
        path,
        format!(
            "in use: programs have files open on a mount of it that was taken off; end them: \
             {users}"
        ),
    )
}

/// Opens the target, or returns what is wrong with it. Waits for a daemon that is closing it or
/// about to close it, for a daemon that was killed and has not ended, and for a copy of its mount
/// in a namespace that is just being made.
pub fn open(path: &Path, access: Access) -> Result<Disk> {
    try_open(path, access).map_err(|refusal| refusal.error)
}

/// The same, for a caller that needs the reason of a refusal.
pub fn try_open(path: &Path, access: Access) -> std::result::Result<Disk, Refusal> {
    patiently(path, || Disk::open(path, access)).map_err(|unopened| match unopened {
        Unopened::Device(error) => Refusal::of(path, access, error),
        Unopened::Explained { error, in_use } => {
            Refusal { error, in_use, is_write_protected: false }
        }
    })
}

/// Why something could not be opened.
pub enum Unopened {
    Device(DeviceError),
    /// It could not be opened, because who has it could not be found out, or takes too long to
    /// close it.
    Explained {
        error: CliError,
        in_use: bool,
    },
}

/// Calls `open_it` for the file or device `path` until it succeeds. Between two calls it waits for
/// the holders that [`open`] waits for; when there is none, it returns the error.
pub fn patiently<T>(
    path: &Path,
    open_it: impl Fn() -> device::Result<T>,
) -> std::result::Result<T, Unopened> {
    let begun = Instant::now();
    let mut is_second = false;
    loop {
        let refusal = match open_it() {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let is_held_by_kernel = refusal.is_held_by_kernel();
        let in_use = refusal.source.kind() == io::ErrorKind::ResourceBusy;
        let with = |error| Unopened::Explained { error, in_use };
        let still_closing = |error: CliError| with(CliError::at(path, format!("in use: {error}")));
        match volumes::user_of(path).map_err(with)? {
            Some(user) if user.is_leaving(begun.elapsed()).map_err(still_closing)? => {
                user.daemon.ended().map_err(with)?;
            }
            Some(_) => return Err(Unopened::Device(refusal)),
            None => match volumes::dying_daemon(path).map_err(with)? {
                Some(daemon) if begun.elapsed() < DYING_PATIENCE => {
                    daemon.ended().map_err(with)?;
                    is_second = false;
                }
                _ if is_held_by_kernel && begun.elapsed() < HELD_PATIENCE => {
                    std::thread::sleep(TRY_EVERY);
                }
                // It may have ended since.
                _ if !is_second => is_second = true,
                _ => return Err(Unopened::Device(refusal)),
            },
        }
    }
}

/// The error of opening a medium, which names its path.
pub fn opening(error: impl Into<DeviceError>) -> CliError {
    let error = error.into();
    let volume = error.in_use().and_then(|user| user.volume.as_ref());
    let unmount = volume.map(|by| format!("; to unmount it: onejournal umount {}", plain_path(by)));
    CliError::new(format!("{}{}", error.source, unmount.unwrap_or_default()))
}

/// The attributes of the open target. Its path may lead to another file by now.
pub fn metadata(path: &Path, disk: &Disk) -> Result<Metadata> {
    let file = disk.file().map_err(|error| CliError::at(path, error.source))?;
    file.metadata().map_err(|error| CliError::at(path, error))
}

/// The open target as the standard input of a program, which opens it by the path [`ON_STDIN`]. The
/// target's own path may lead to another file by now.
pub fn on_stdin(path: &Path, disk: &Disk) -> Result<Stdio> {
    disk.file().map(Stdio::from).map_err(|error| CliError::at(path, error.source))
}

/// The users whose files may be used together with the open target: this user, root, and the owner
/// of an image file, who can change the content of the volume anyway.
pub fn trust(path: &Path, disk: &Disk) -> Result<Trust> {
    let found = metadata(path, disk)?;
    let trust = match found.is_file() {
        true => Trust::own_and(found.uid(), found.gid()),
        false => Trust::own(),
    };
    Ok(trust.and_root())
}

/// Refuses a path through the server of another user, who may never answer, or on it.
pub fn check_way(path: &Path) -> Result<()> {
    match Trust::own().and_root().reach_trusted(path) {
        Err(error) if error.raw_os_error().is_none() => Err(CliError::at(path, error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Ways to name a device by what is on it, as in fstab.
const TAGS: [&str; 4] = ["UUID=", "LABEL=", "PARTUUID=", "PARTLABEL="];

/// The device that a tag such as `LABEL=data` names; a path is left as it is.
pub fn find(target: &Path) -> Result<PathBuf> {
    let tag = target.to_str().filter(|text| TAGS.iter().any(|tag| text.starts_with(tag)));
    let Some(tag) = tag else { return Ok(target.to_owned()) };
    // Without libblkid's cache, which keeps what was on a device for minutes.
    let output = in_sbin("findfs").arg(tag).env("BLKID_FILE", "/dev/null").output();
    let output = output.map_err(|error| CliError::new(format!("findfs: {error}")))?;
    if output.status.success() {
        let text = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
        return Ok(OsStr::from_bytes(text).into());
    }
    Err(CliError::at(target, "no device has it; `lsblk -f` lists what there is"))
}

/// The absolute path of the target, for messages and the mount table.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::at(path, MISSING),
        _ => CliError::at(path, error),
    })
}

/// A program of the system, also if `/sbin` is not in the path.
pub fn in_sbin(name: &str) -> Command {
    let places = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).join(name));
    let found = places.into_iter().find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| PathBuf::from(name)))
}

/// The error of a program that could not be started.
pub fn cannot_start(name: &str, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            CliError::new(format!("{name} is not installed (apt install e2fsprogs)"))
        }
        _ => CliError::new(format!("{name}: {error}")),
    }
}

/// Parses a size: a number of bytes, with K, M, G or T for powers of 1024.
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("unknown unit {unit:?}; use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size (try 256M)".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use onejournal_testing::is_root;

    use super::*;

    /// The owner of the image is trusted, not the owner of what its path leads to later.
    #[test]
    fn regression_the_owner_of_the_open_image_is_trusted() {
        let (other, third) = (65_533, 65_534);
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (image, later) = (home.path().join("image"), home.path().join("later"));
        for (path, owner) in [(&image, other), (&later, third)] {
            std::fs::write(path, [0; 4096]).unwrap();
            chown(path, Some(owner), Some(owner)).unwrap();
        }
        let disk = open(&image, Access::ReadOnly).unwrap();
        std::fs::rename(&later, &image).unwrap();
        let trusted = trust(&image, &disk).unwrap();
        assert_eq!(trusted, Trust::own_and(other, other).and_root());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("256M"), Ok(256 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert!(parse_size("12 parsecs").is_err());
        assert!(parse_size("M").is_err());
        assert!(parse_size("99999999T").is_err());
    }
}
