//! `onejournal set-mode` and `get-mode`: the data mode of a file, and the declaration that its
//! writes must be atomic, through its attributes.

use std::fs::File;
use std::path::{Path, PathBuf};

use ext4::{
    ATOMIC_VOLUME_XATTR, ATOMIC_XATTR, DATA_MODE_XATTR, DECLARED_BYTES, DataMode, parse_declared,
};
use mount::{Limit, Order};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::counters::{Counters, declared_bytes, parse, read_attribute, read_raw};
use crate::inventory::{ask_modes, check_answers};
use crate::output::{plain, plain_path};
use crate::{CliError, Result, SetModeArgs, aside, say, target};

/// What is set of a file.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Its data mode.
    Mode(DataMode),
    /// The volume's data mode.
    Default,
    /// It is declared to need atomic writes of so many bytes.
    Atomic(u64),
    /// It is not.
    NoAtomic,
    /// The volume forgets that it has had declared files.
    ForgetAtomic,
}

pub fn set(args: &SetModeArgs, is_aside: bool) -> Result<u8> {
    let (change, files) = wanted(args)?;
    if !is_aside {
        // Elsewhere the attribute would be an ordinary one, without effect.
        check_answers(files)?;
        return aside::run_again();
    }
    for file in files {
        make(change, file).map_err(|errno| refused(change, file, errno))?;
    }
    Ok(0)
}

/// The change, and the files.
fn wanted(args: &SetModeArgs) -> Result<(Change, &[PathBuf])> {
    if let Some(bytes) = args.atomic {
        return Ok((Change::Atomic(bytes), &args.words));
    }
    if args.no_atomic {
        return Ok((Change::NoAtomic, &args.words));
    }
    if args.forget_atomic {
        return Ok((Change::ForgetAtomic, &args.words));
    }
    let (mode, files) = args.words.split_first().expect("clap demands a word");
    let mode = mode.to_string_lossy();
    let change = match DataMode::from_name(&mode) {
        Some(mode) => Change::Mode(mode),
        None if mode == "default" => Change::Default,
        None => {
            return Err(CliError::usage(format!(
                "{mode} is not a data mode; {}, and default",
                names()
            )));
        }
    };
    if files.is_empty() {
        return Err(CliError::usage("name the files after the mode"));
    }
    Ok((change, files))
}

fn make(change: Change, file: &Path) -> rustix::io::Result<()> {
    match change {
        Change::Mode(mode) => set_attribute(file, DATA_MODE_XATTR, mode.name()),
        Change::Default => remove_attribute(file, DATA_MODE_XATTR),
        Change::Atomic(bytes) => {
            set_attribute(file, ATOMIC_XATTR, &bytes.to_string())?;
            // A database may rely on it from now on.
            let synced = File::open(file).and_then(|file| file.sync_all());
            synced.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
        Change::NoAtomic => remove_attribute(file, ATOMIC_XATTR),
        Change::ForgetAtomic => remove_attribute(file, ATOMIC_VOLUME_XATTR),
    }
}

fn set_attribute(file: &Path, name: &str, value: &str) -> rustix::io::Result<()> {
    rustix::fs::setxattr(file, name, value.as_bytes(), XattrFlags::empty())
}

fn remove_attribute(file: &Path, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::removexattr(file, name) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

/// The error of a change, with what to do.
fn refused(change: Change, file: &Path, errno: Errno) -> CliError {
    if let (Change::Atomic(bytes), Errno::PERM) = (change, errno)
        && is_for_owner_of_volume(bytes, file)
    {
        return CliError::at(
            file,
            format!(
                "the volume would refuse mounts that tear writes of {bytes} bytes from now on: \
                 only root and the owner of the volume's root directory may declare this size first"
            ),
        );
    }
    if errno != Errno::OPNOTSUPP {
        return CliError::at(file, errno);
    }
    if rustix::fs::listxattr(file, &mut [0; 0]) == Err(Errno::OPNOTSUPP) {
        return CliError::at(file, "the mount has no extended attributes: mount without noxattr");
    }
    let why = match change {
        Change::Mode(mode) => why_not_mode(mode, file),
        Change::Atomic(bytes) => why_not_atomic(bytes, file),
        Change::Default | Change::NoAtomic | Change::ForgetAtomic => None,
    };
    CliError::at(file, why.unwrap_or_else(|| errno.to_string()))
}

/// Whether the declaration was refused because the volume does not remember one of this size.
fn is_for_owner_of_volume(bytes: u64, file: &Path) -> bool {
    let known = read_raw(file, ATOMIC_VOLUME_XATTR.as_bytes()).ok();
    let known = known.and_then(|value| parse_declared(&value)).unwrap_or(0);
    bytes > known && !rustix::process::geteuid().is_root()
}

/// Why a declared file cannot have this mode.
fn why_not_mode(mode: DataMode, file: &Path) -> Option<String> {
    let bytes = declared_bytes(file)?;
    Some(format!(
        "is declared to need atomic writes of {bytes} bytes, and writes of data mode {} are not \
         atomic; to take the declaration off: onejournal set-mode --no-atomic {}",
        mode.name(),
        plain_path(file)
    ))
}

/// Why a file cannot be declared.
fn why_not_atomic(bytes: u64, file: &Path) -> Option<String> {
    let own = read_raw(file, DATA_MODE_XATTR.as_bytes()).ok();
    let own = own.and_then(|name| DataMode::from_name(std::str::from_utf8(&name).ok()?));
    let mode = read_attribute(file, mount::MODE_XATTR).ok()?;
    if let Some(own) = own.filter(|own| !own.is_atomic() && own.name() == mode) {
        return Some(format!(
            "writes of data mode {mode} are not atomic; to give it another one: onejournal \
             set-mode auto {}",
            plain_path(file),
            mode = own.name()
        ));
    }
    let stat = Counters(parse(file, &read_attribute(file, mount::STAT_XATTR).ok()?).ok()?);
    if stat.is_set("read_only") {
        return Some("the volume is read-only".into());
    }
    let order = stat.text("order").and_then(Order::from_name)?;
    let advice = Limit::of(order, bytes).advice();
    let here = read_attribute(file, mount::ATOMIC_WRITE_BYTES_XATTR).ok()?;
    let less = match here.as_str() {
        "0" => String::new(),
        here => format!(", or declare less: --atomic={here}"),
    };
    Some(format!("writes of {bytes} bytes are not atomic on this mount: {advice}{less}"))
}

pub fn get(files: &[PathBuf]) -> Result<u8> {
    for (file, answer) in files.iter().zip(ask_modes(files)) {
        let counters = Counters(answer?.counters);
        let mode = plain(counters.text("mode").unwrap_or_default());
        let declared = counters.text("atomic").map(|bytes| format!(" atomic={}", plain(bytes)));
        let (declared, file) = (declared.unwrap_or_default(), plain_path(file));
        say!("{mode}{declared}\t{file}");
    }
    Ok(0)
}

/// The names of the modes, for the error about an unknown mode.
pub fn names() -> String {
    let names: Vec<_> = DataMode::ALL.iter().map(|mode| mode.name()).collect();
    format!("there are {}", names.join(", "))
}

/// The size of `--atomic=SIZE`.
pub fn parse_atomic(text: &str) -> std::result::Result<u64, String> {
    let bytes = target::parse_size(text)?;
    let is_size = bytes.is_power_of_two() && DECLARED_BYTES.contains(&bytes);
    if is_size { Ok(bytes) } else { Err("give a power of two from 4K to 1M".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_pages_are_sizes() {
        assert_eq!(parse_atomic("16K"), Ok(16 << 10));
        assert_eq!(parse_atomic("4096"), Ok(4096));
        for bad in ["0", "2K", "12K", "2M", "x", ""] {
            assert!(parse_atomic(bad).is_err(), "{bad}");
        }
    }
}
