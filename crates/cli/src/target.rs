//! The device or file a command works on: opening it, and the programs of e2fsprogs around it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use device::{Access, DeviceError, Disk, TrustedUsers};

use crate::volumes::{self, User};
use crate::{CliError, Result};

/// Why a target could not be opened.
pub struct Refusal {
    pub error: CliError,
    /// Somebody else has it.
    pub in_use: bool,
}

/// Opens the target, or says what is wrong with it. Waits for a daemon that is just closing it.
pub fn open(path: &Path, access: Access) -> Result<Disk> {
    try_open(path, access).map_err(|refusal| refusal.error)
}

/// The same, for a caller to whom it matters why it could not be opened.
pub fn try_open(path: &Path, access: Access) -> std::result::Result<Disk, Refusal> {
    let mut is_second = false;
    loop {
        let refusal = match Disk::open(path, access) {
            Ok(disk) => return Ok(disk),
            Err(error) => Refusal {
                in_use: error.source.kind() == io::ErrorKind::ResourceBusy,
                error: opening(error),
            },
        };
        let with = |error| Refusal { error, in_use: refusal.in_use };
        match volumes::user_of(path).map_err(with)? {
            Some(User::Closing(daemon)) => while !daemon.ended().map_err(with)? {},
            Some(User::Serving(text)) => {
                return Err(with(CliError::new(format!("{}; {text}", refusal.error))));
            }
            // It may have ended since.
            None if !is_second => is_second = true,
            None => return Err(refusal),
        }
    }
}

/// The error of opening a medium, which names its path.
pub fn opening(error: DeviceError) -> CliError {
    CliError::new(error.source.to_string())
}

/// The users whose files may be used together with the target: ourselves, root, and the owner of
/// an image file, who can put into the volume whatever he likes anyway.
pub fn trust(target: &Path) -> TrustedUsers {
    let found = std::fs::metadata(target).ok().filter(std::fs::Metadata::is_file);
    TrustedUsers::of_us_and(found.map(|found| found.uid()))
}

/// The absolute path of the target, for messages and the mount table.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| CliError::at(path, error))
}

/// A command of e2fsprogs, also where `/sbin` is not on the path.
pub fn e2fsprogs(name: &str) -> Command {
    let in_sbin = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).join(name));
    let found = in_sbin.into_iter().find(|path| path.exists());
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
    use super::parse_size;

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
