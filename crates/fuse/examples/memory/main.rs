//! A file system in memory: one directory of files that can be made, read, written, cut and
//! removed.
//!
//! `cargo run --example memory -- DIR` mounts it on DIR, an empty directory, until it is unmounted
//! (`umount DIR`, or `fusermount3 -u DIR` without root). Its files are lost then.

mod file_system;

use std::path::Path;
use std::process::ExitCode;

use onejournal_fuse::{Connection, MountError, MountOptions, Source};

use crate::file_system::Memory;

fn mount(dir: &Path) -> Result<(), MountError> {
    let source = Source::Plain { name: "memory".into() };
    let options = MountOptions { subtype: Some("memory".into()), ..MountOptions::default() };
    let connection = Connection::mount(&source, dir, &options)?;
    println!("mounted on {}", dir.display());
    connection.run(&Memory::new()).map(drop)
}

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: memory DIR");
        return ExitCode::FAILURE;
    };
    match mount(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
