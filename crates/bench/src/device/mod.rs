//! An emulated disk: a file in a FUSE mount whose requests take as long as a model says. A loop device
//! over it (`losetup -f --show --direct-io=on DIR/disk`) carries any file system.
//!
//! # The files
//!
//! | file | |
//! |---|---|
//! | `disk` | the disk: reads, writes, `fsync` (a flush), holes and zeroed ranges (a discard) |
//! | `counters` | what the disk was asked to do, as JSON, with its parameters |
//! | `control` | takes commands ([`control::Command`]) |
//! | `trace` | one line an operation, while tracing: microseconds, `R`, `W`, `F` or `D`, offset, bytes |
//!
//! # The model
//!
//! See [`model::Model`]: a transfer takes its turn on the bus and then a latency on one of several
//! channels; a flush waits for all channels and costs a fixed time and one for each further extent that
//! was written. A disk that rotates seeks instead.
//!
//! A write's data are there at once, its answer comes when the model says; so the order in which writes
//! become visible is the order of their arrival. With a volatile cache, what was written since the last
//! flush can be lost (`crash P SEED`), each sector of 512 bytes by itself; see [`disk::Disk`].
//!
//! # Exactness
//!
//! One thread takes and answers all requests. It sleeps until `spin_us` (60) before the next answer is
//! due and watches the clock from there; it runs under `SCHED_FIFO` where it may. How late its answers
//! were is among the counters. Memory: the disk itself (all of it from the start, so that no request pays
//! for it), and with a volatile cache what unflushed blocks held before; at most twice the disk.
//!
//! `mkfs -E nodiscard` (`-K`) is quicker: a discard zeroes memory and keeps it.

mod control;
mod counters;
mod disk;
mod emulator;
mod files;
mod model;
mod parameters;
mod service;
mod trace;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use mount::{Connection, IoUring, MountHandle, MountOptions, Polled, Source};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use control::Command;
use disk::Disk;
use emulator::Emulator;
pub use parameters::Parameters;

/// An emulated disk, the file DIR/disk, until it is unmounted (SIGINT and SIGTERM do)
#[derive(Args)]
#[command(after_help = parameters::help())]
pub struct DeviceArgs {
    /// The device to imitate
    #[arg(long, default_value = "ssd311")]
    preset: String,
    /// Parameters that differ from the preset: KEY=VALUE,...
    #[arg(long, default_value = "")]
    set: String,
    /// Size of the disk in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size_mib: u32,
    /// An empty directory
    dir: PathBuf,
}

/// Gives an emulated disk a command, or prints its counters
#[derive(Args)]
pub struct ControlArgs {
    /// Where the disk is mounted
    dir: PathBuf,
    /// reset | set PRESET|KEY=VALUE,... | trace on|off | region NAME START END | regions off |
    /// crash PROBABILITY SEED | power on|off | save | restore
    command: Vec<String>,
}

/// Mounts, says `ready`, and serves until unmounted.
pub fn run(args: &DeviceArgs) -> Result<(), Box<dyn Error>> {
    let mut parameters = Parameters::preset(&args.preset)?;
    parameters.apply(&args.set)?;
    let disk = Disk::new(u64::from(args.size_mib) << 20);
    let emulator = Emulator::new(parameters, disk);
    let options = MountOptions {
        io_uring: IoUring::Off,
        fsname: Some("onejournal-bench".into()),
        ..MountOptions::default()
    };
    let source = Source::Plain { name: "onejournal-bench".into() };
    let polled = Connection::mount(&source, &args.dir, &options)?.into_polled()?;
    let handle = polled.handle();
    let served = serve(polled, emulator);
    if served.is_err() {
        // Nobody answers here any more.
        let _ = handle.unmount_lazily();
    }
    served
}

fn serve(polled: Polled, emulator: Emulator) -> Result<(), Box<dyn Error>> {
    unmount_on_signal(polled.handle())?;
    service::prefer_this_thread();
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    output.flush()?;
    service::run(polled, emulator)?;
    Ok(())
}

/// While somebody uses the disk, it is detached, and the service ends with the last user.
fn unmount_on_signal(handle: MountHandle) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let body = move || {
        for _ in signals.forever() {
            if let Err(error) = handle.unmount() {
                eprintln!("onejournal-bench: {error}; it ends when nobody uses it");
                let _ = handle.unmount_lazily();
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(body)?;
    Ok(())
}

/// Sends one command, checked here because a file system can only answer with an errno.
pub fn control(args: &ControlArgs) -> Result<(), Box<dyn Error>> {
    let at = |name: &str| {
        let path = args.dir.join(name);
        let shown = path.display().to_string();
        (path, move |error: std::io::Error| format!("{shown}: {error}"))
    };
    if args.command.is_empty() {
        let (path, failed) = at("counters");
        print!("{}", std::fs::read_to_string(path).map_err(failed)?);
        return Ok(());
    }
    let text = args.command.join(" ");
    text.parse::<Command>()?;
    let (path, failed) = at("control");
    let mut file = std::fs::OpenOptions::new().write(true).open(path).map_err(&failed)?;
    file.write_all(text.as_bytes()).map_err(&failed)?;
    Ok(())
}
