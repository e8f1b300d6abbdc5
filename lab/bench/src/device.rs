//! `device` and `control`: runs the emulated disk of crate `drive` as a process, and sends it
//! commands.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use mount::MountHandle;
use onejournal_testing::drive::{Command, Disk, Emulator, Mounted};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use onejournal_testing::drive::Parameters;

/// An emulated disk, the file DIR/disk, until it is unmounted (SIGINT and SIGTERM do)
#[derive(Args)]
#[command(after_help = onejournal_testing::drive::help())]
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
    /// crash PROBABILITY SEED | power on|off | hold on|off | fail reads|writes|flushes|nothing |
    /// save | restore
    command: Vec<String>,
}

/// Mounts the disk, prints `ready`, and serves until it is unmounted.
pub fn run(args: &DeviceArgs) -> Result<(), Box<dyn Error>> {
    let mut parameters = Parameters::preset(&args.preset)?;
    parameters.apply(&args.set)?;
    let disk = Disk::new(u64::from(args.size_mib) << 20);
    let emulator = Emulator::new(parameters, disk);
    let mounted = Mounted::for_loop_device(&args.dir, "onejournal-bench")?;
    let handle = mounted.handle();
    let served = serve(mounted, emulator);
    if served.is_err() {
        // This process no longer serves the mount, so the mount must not stay.
        let _ = handle.unmount_lazily();
    }
    served
}

fn serve(mounted: Mounted, emulator: Emulator) -> Result<(), Box<dyn Error>> {
    unmount_on_signal(mounted.handle())?;
    onejournal_testing::drive::prefer_this_thread();
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    output.flush()?;
    mounted.serve(emulator)?;
    Ok(())
}
/// While a program uses the disk, it is detached, and the service ends with the last user.
fn unmount_on_signal(handle: MountHandle) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let body = move || {
        for _ in signals.forever() {
            if let Err(error) = handle.unmount() {
                eprintln!("onejournal-bench: {error}; it ends with its last user");
                let _ = handle.unmount_lazily();
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(body)?;
    Ok(())
}

/// Sends one command. It is checked here, because a file system can answer only with an errno.
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
