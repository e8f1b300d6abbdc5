//! The `onejournal` command: parses the command line, runs one subcommand, and turns errors into a
//! sentence and an exit code. It does not know the formats of ext4 and the journal.
//!
//! It is a library so that two programs share it: `onejournal` runs [`main`], and
//! `onejournal-pages` writes the man pages and completions ([`pages`]), which are made from the
//! same descriptions of options.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   helpers looks              what mount(8) and fsck(8) start; what another process looks at
//!   verbs/                     the subcommands, one module each
//!   mount_options              the options of a mount
//!   inventory/ journal_path    volumes and logs in use; an external journal
//!   target journal_search      the device or file of a command; the journal of a volume
//!   volumes                    the volume that a path means
//!   namespaces ending          mount namespaces; the signals that end a server
//!   aside claimant counters fusectl guard in_place kernel messages new_file occupant page_writer
//!   advice handover process_looks service_manager memory output signals surroundings units users
//!   error
//!   letters                    text from outside, without what a terminal acts on
//! ```

mod advice;
mod aside;
mod claimant;
mod counters;
mod ending;
mod error;
mod fusectl;
mod guard;
mod handover;
mod helpers;
mod in_place;
mod inventory;
mod journal_path;
mod journal_search;
mod kernel;
mod letters;
mod looks;
mod memory;
mod messages;
mod mount_options;
mod namespaces;
mod new_file;
mod occupant;
mod output;
mod page_writer;
pub mod pages;
mod process_looks;
mod service_manager;
mod signals;
mod surroundings;
mod target;
mod units;
mod users;
mod verbs;
mod volumes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use error::{CliError, Result};

/// A user-space ext4 volume with a journal whose fsync is one device write.
#[derive(Parser)]
#[command(name = "onejournal", version, max_term_width = 100)]
struct Cli {
    /// Do what the process that started this one waits for (internal)
    #[arg(long, hide = true)]
    aside: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an ext4 volume (runs mke2fs with the block and inode size OneJournal needs)
    Mkfs(MkfsArgs),
    /// Mount a volume; returns when it is ready
    Mount(MountArgs),
    /// Unmount a volume; returns when everything is home, or says what keeps it or that it was not
    /// closed
    ///
    /// A directory: what is mounted on it. An image or a device: all its mounts, also in other
    /// mount namespaces.
    Umount(UmountArgs),
    /// Take the mounts of a device off in the mount namespace on standard input (internal)
    #[command(hide = true)]
    Detach(namespaces::DetachArgs),
    /// Abort the connection of a file system to its daemon when that dies (internal)
    #[command(hide = true)]
    Guard(guard::GuardArgs),
    /// Have the kernel write back the pages that it holds of a file system (internal)
    #[command(hide = true)]
    WritePages(page_writer::PageWriterArgs),
    /// Answer each line of standard input with what a mount says (internal)
    #[command(hide = true)]
    Ask(inventory::AskArgs),
    /// Answer each line of standard input with the logs that are visible (internal)
    #[command(hide = true)]
    AskLogs(inventory::AskLogsArgs),
    /// Look at what processes have open (internal)
    #[command(hide = true)]
    Look(looks::LookArgs),
    /// Say whether this program goes on with a mount that is handed over in a form (internal)
    #[command(hide = true)]
    Resumes {
        /// Number of the form
        format: u32,
    },
    /// Replace the daemon of a mounted volume by the program that is installed now
    ///
    /// After an upgrade, without unmounting: programs that use the volume wait a moment, and get no
    /// error. The process keeps its number. Everything written is synced before. Refused through
    /// io_uring, with the option atomic_writes, and after an error of the volume.
    Restart(verbs::restart::RestartArgs),
    /// Make everything durable that programs have written to mounted volumes
    ///
    /// Like sync(1) for these volumes, on every kernel: before Linux 6.18 a volume does not hear of
    /// sync(1) and syncfs(2).
    Sync(verbs::sync::SyncArgs),
    /// Recover a volume, then check it with e2fsck
    ///
    /// Exit codes are those of fsck(8): 0 clean, 1 recovered or errors corrected, 4 errors left, a
    /// damaged journal, or with -n a volume that was not closed, 8 operational error, 16 usage
    /// error.
    Fsck(FsckArgs),
    /// Print the journal of a volume; changes nothing
    Dump(DumpArgs),
    /// Print the counters of a mounted volume, or of a file on it
    ///
    /// For a directory: the counters of the whole volume. For a file: what was written to it, and
    /// what the volume wrote because of that. All count from the mount. For an image or a device:
    /// the counters of the volume, and the process that serves it.
    Stat(StatArgs),
    /// Measure a disk, and say whether it is good enough for a database
    ///
    /// Needs no volume. Measures writes, flushes, parallel flushes and appends on files of its own
    /// without a name in a directory, which disappear at the end, or with --destroy on a block
    /// device. Says whether flushes look honoured, what a commit costs on ext4 and on OneJournal,
    /// and whether the disk is suitable for etcd, PostgreSQL and SQLite. A measurement cannot prove
    /// that a disk honours flushes; only a power cut can.
    ///
    /// With --watch it writes nothing, and forecasts from /proc/diskstats when the rated endurance
    /// is reached.
    ///
    /// Exit codes with --for: 0 suitable, 1 not suitable, 8 operational error, 16 usage error. None
    /// of the three is suitable where flushes look ignored, or where nothing is durable. Besides,
    /// etcd needs a 99th percentile of fdatasync after appends of 2300 bytes of at most 10 ms;
    /// PostgreSQL one of a write of 16 KiB and its flush of at most 10 ms; SQLite one of a write of
    /// 4 KiB and its flush of at most 25 ms, of which a transaction has four.
    Probe(verbs::probe::ProbeArgs),
    /// List the mounted volumes and the logs in use of this machine
    ///
    /// The logs, and the processes that serve volumes, come from /proc: root sees all of them,
    /// other users see their own.
    Ls(verbs::ls::LsArgs),
    /// Show what volumes and logs do, again and again
    ///
    /// Keys: q ends; Tab goes to the next part; the arrows choose a volume; s changes the order of
    /// its files.
    Top(verbs::top::TopArgs),
    /// Give a volume a journal of its own on another device, another one, or none (--internal)
    ///
    /// The volume is not mounted, and was closed. `mount` finds a journal on a device by itself.
    SetJournal(verbs::set_journal::SetJournalArgs),
    /// Set where and in which form the data of files are written (docs/reference/modes.md), or
    /// declare that they need atomic writes (docs/reference/atomicity.md, "Untorn writes")
    ///
    /// Everything that the journal holds is brought home first. New files in a directory inherit
    /// its mode and its declaration.
    #[command(override_usage = "onejournal set-mode <MODE> <FILE>...\n       \
                                onejournal set-mode --atomic[=<SIZE>] <FILE>...\n       \
                                onejournal set-mode --no-atomic <FILE>...\n       \
                                onejournal set-mode --forget-atomic <DIR>")]
    SetMode(SetModeArgs),
    /// Print the data mode of files, and what they are declared to need
    GetMode(GetModeArgs),
    /// Serve a log directory to other processes; returns on SIGTERM
    Logd(verbs::logd::LogdArgs),
    /// Look at the streams of a log
    Log(verbs::log::LogArgs),
}

#[derive(Args)]
struct MkfsArgs {
    /// Size of the volume (e.g. 256M, 4G): the file is made, or set to this size
    #[arg(long, value_parser = target::parse_size)]
    size: Option<u64>,
    /// Block device for the journal, in place of the volume, which finds it there; or a file
    /// (`mount -o journal=PATH`)
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// Size of the journal, at least 4M. In the volume (default: a tenth of a volume of 160M to
    /// 16G, at most 128M; for others as mke2fs does), or with --journal there (default: all of the
    /// device, at most 1G; a file that does not exist is made)
    #[arg(long, value_parser = target::parse_size)]
    journal_size: Option<u64>,
    /// Label of the volume (at most 16 bytes)
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// Overwrite what the target holds, and with --journal what that device holds
    #[arg(long)]
    force: bool,
    /// Block device or file
    target: PathBuf,
}

#[derive(Args)]
struct MountArgs {
    /// Stay in the foreground; messages go to standard error instead of syslog
    #[arg(short = 'f', long)]
    foreground: bool,
    #[arg(
        short = 'o',
        long = "options",
        value_name = "OPTIONS",
        value_delimiter = ',',
        help = "Mount options, separated by commas; `-o help` shows them"
    )]
    options: Vec<String>,
    /// Tell the parent process on standard output that the mount is ready (internal)
    #[arg(long, hide = true)]
    announce: bool,
    /// Go on with the mount that standard input hands over (internal)
    #[arg(long, hide = true)]
    resume: bool,
    /// Block device or file that holds the volume, or its UUID=, LABEL= or PARTUUID=
    target: PathBuf,
    /// Directory to mount it on
    dir: PathBuf,
}

#[derive(Args)]
struct UmountArgs {
    /// Only take a mount off DIR whose daemon has died; do nothing if it serves
    #[arg(long)]
    dead: bool,
    /// Directory the volume is mounted on, or its image or device
    path: PathBuf,
}

#[derive(Args)]
struct FsckArgs {
    /// Change nothing: say what recovery would do, check what can be checked
    #[arg(short = 'n')]
    dry_run: bool,
    /// Recover; check only a volume that is marked as damaged (for boots; without it all is
    /// checked)
    #[arg(short = 'p', visible_short_alias = 'a', conflicts_with_all = ["dry_run", "yes"])]
    preen: bool,
    /// Answer yes to all questions of e2fsck (default: repair only what is safe)
    #[arg(short = 'y', conflicts_with = "dry_run")]
    yes: bool,
    /// Where the journal is damaged, give up the history after the damage
    #[arg(long, conflicts_with = "dry_run")]
    discard_damaged: bool,
    /// The journal, if it is a file or NVRAM (one on a block device is found)
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// Continue although another machine has not closed the volume: it must not be mounted there
    #[arg(long, conflicts_with = "dry_run")]
    takeover: bool,
    /// The journal is lost: let e2fsck repair the volume without its newest changes
    #[arg(long, requires = "yes", conflicts_with = "journal")]
    journal_lost: bool,
    /// Block device or file that holds the volume, or its UUID=, LABEL= or PARTUUID=
    target: PathBuf,
}

#[derive(Args)]
struct DumpArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The journal, if it is a file or NVRAM (one on a block device is found)
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// Block device or file that holds the volume
    target: PathBuf,
}

#[derive(Args)]
struct SetModeArgs {
    /// Declare that aligned writes of up to SIZE bytes (64K) must be atomic
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true,
          default_missing_value = "64K", value_parser = verbs::set_mode::parse_atomic,
          conflicts_with_all = ["no_atomic", "forget_atomic"])]
    atomic: Option<u64>,
    /// Take that declaration off
    #[arg(long, conflicts_with = "forget_atomic")]
    no_atomic: bool,
    /// Let the volume forget that it has had declared files; the owner of its root directory may
    #[arg(long)]
    forget_atomic: bool,
    /// Without these options first a mode: ordered, writeback, journal, wasteless, selective,
    /// delta, auto, or default (the volume's). Then files or directories of a mounted volume
    #[arg(required = true, value_name = "FILE")]
    words: Vec<PathBuf>,
}

#[derive(Args)]
struct GetModeArgs {
    /// Files or directories of a mounted volume
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

#[derive(Args)]
struct StatArgs {
    /// Every counter by its name in --json, without units
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    all: bool,
    /// As JSON; with --watch, an object on each line
    #[arg(long)]
    json: bool,
    /// Print a line with the volume's rates at this interval in seconds (default 1), until
    /// interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = parse_interval)]
    watch: Option<f64>,
    /// A file or directory of a mounted volume, or its image or device
    path: PathBuf,
}

fn parse_interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("give 0.1 to 86400 seconds".into()),
    }
}

/// Runs the command or the helper that this process was started as.
pub fn main() -> ExitCode {
    // Before there are threads. A program that goes on with a mount has no handlers yet.
    if !std::env::args_os().any(|word| word == "--resume") {
        host::reset_signals();
    }
    if let Some(code) = helpers::run() {
        return ExitCode::from(code);
    }
    if mount_options::asks_for_help(std::env::args()) {
        mention!("{}", mount_options::help().trim_end());
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(output::print_usage(error)),
    };
    let result = if cli.aside { aside::begin() } else { Ok(()) };
    let is_aside = cli.aside;
    let result = result.and_then(|()| match cli.command {
        Command::Mkfs(args) => verbs::mkfs::run(&args),
        Command::Mount(args) => verbs::mount::run(&args, is_aside),
        Command::Umount(args) => verbs::umount::run(&args.path, args.dead),
        Command::Detach(args) => namespaces::run_detach(&args),
        Command::Guard(args) => guard::run(&args),
        Command::WritePages(args) => page_writer::run(&args),
        Command::Resumes { format } => Ok(handover::run_resumes(format)),
        Command::Restart(args) => verbs::restart::run(&args, is_aside),
        Command::Sync(args) => verbs::sync::run(&args, is_aside),
        Command::Ask(args) => inventory::run_ask(&args),
        Command::AskLogs(args) => inventory::run_ask_logs(&args),
        Command::Look(args) => looks::run(args),
        Command::Fsck(args) => verbs::fsck::run(args),
        Command::Dump(args) => verbs::dump::run(&args),
        Command::Stat(args) => verbs::stat::run(&args),
        Command::Probe(args) => verbs::probe::run(&args),
        Command::Ls(args) => verbs::ls::run(&args),
        Command::Top(args) => verbs::top::run(&args),
        Command::SetJournal(args) => verbs::set_journal::run(&args),
        Command::SetMode(args) => verbs::set_mode::set(&args, is_aside),
        Command::GetMode(args) => verbs::set_mode::get(&args.files),
        Command::Logd(args) => verbs::logd::run(&args),
        Command::Log(args) => verbs::log::run(&args),
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            if !error.text.is_empty() {
                output::complain!("onejournal: {error}");
            }
            ExitCode::from(error.code)
        }
    }
}
