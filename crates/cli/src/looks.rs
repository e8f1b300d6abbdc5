//! `onejournal look`: looks at what processes have open, for a command that does not wait for it
//! (`crate::aside::told_within`).

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::aside::{ALL, SOME};
use crate::error::Result;
use crate::namespaces::NamespaceId;
use crate::output::{print_line, say_json};
use crate::process_looks::{Finding, LOOK_LIMIT, ProcessLooks};
use crate::verbs::{self, umount};
use crate::{fusectl, inventory, volumes};

#[derive(Args)]
pub struct LookArgs {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// Processes that use the file system with the number MAJOR:MINOR
    Users {
        #[arg(value_parser = fusectl::parse_device)]
        device: (u32, u32),
    },
    /// Processes that have a file below this directory open or mapped
    Files { dir: PathBuf },
    /// Processes that look like daemons, and what they have open
    Daemons,
    /// Processes with their mount namespaces
    Namespaces,
    /// Detached volumes
    Detached,
    /// The advice for an unmounted volume that was not closed
    LeftOpen {
        /// Its mount had failed
        #[arg(long)]
        has_failed: bool,
        target: PathBuf,
    },
}

pub fn run(args: LookArgs) -> Result<u8> {
    print_line(b"")?;
    let (lines, is_all) = match args.subject {
        Subject::Users { device } => pids(move |pid| host::process_uses(pid, device)),
        Subject::Files { dir } => pids(move |pid| verbs::log::has_open(pid, &dir)),
        Subject::Daemons => json(all(|pid| volumes::looks_like_daemon(pid).into_iter().collect())),
        Subject::Namespaces => json(all(|pid| {
            Vec::from_iter(NamespaceId::of_process(pid).map(|namespace| (pid, namespace)))
        })),
        Subject::Detached => json(inventory::look_for_detached()),
        Subject::LeftOpen { has_failed, target } => {
            json((Vec::from_iter(umount::left_open(&target, has_failed)), true))
        }
    };
    for line in lines {
        say_json!(line);
    }
    print_line(if is_all { ALL } else { SOME }.as_bytes())?;
    Ok(0)
}

fn all<T: Finding>(look: impl Fn(i32) -> Vec<T> + Send + Sync + 'static) -> (Vec<T>, bool) {
    ProcessLooks::new().look(LOOK_LIMIT, look)
}

/// The processes that `is_one` says.
fn pids(is_one: impl Fn(i32) -> bool + Send + Sync + 'static) -> (Vec<String>, bool) {
    let (pids, is_all) = all(move |pid| Vec::from_iter(is_one(pid).then_some(pid)));
    (pids.iter().map(i32::to_string).collect(), is_all)
}

fn json<T: serde::Serialize>((found, is_all): (Vec<T>, bool)) -> (Vec<String>, bool) {
    let lines = found.iter().map(|one| serde_json::to_string(one).expect("plain data"));
    (lines.collect(), is_all)
}
