//! A client that makes many entries in a directory, looks some of them up, and syncs a file without
//! changes. It prints the times as JSON.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;

/// Times of calls on a directory with many entries
#[derive(Args)]
pub struct EntriesArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make empty files
    Make { dir: PathBuf, count: usize },
    /// stat() of random ones
    Look { dir: PathBuf, count: usize, samples: usize },
    /// fsync() of a file without changes; it is made if it does not exist
    SyncIdle { file: PathBuf, count: usize },
}

/// Runs the command. Prints `{"us": [...]}`, the microseconds of each call, or for `make` of all
/// calls together.
pub fn run(args: &EntriesArgs) -> Result<(), Box<dyn Error>> {
    let us = match &args.command {
        Command::Make { dir, count } => {
            fs::create_dir(dir)?;
            let start = Instant::now();
            for number in 0..*count {
                File::create(dir.join(name(number)))?;
            }
            vec![start.elapsed().as_secs_f64() * 1e6 / *count as f64]
        }
        Command::Look { dir, count, samples } => {
            let mut rng = fastrand::Rng::with_seed(3);
            let path = |_| dir.join(name(rng.usize(..*count)));
            let paths: Vec<PathBuf> = (0..*samples).map(path).collect();
            times(paths.iter(), |path| fs::metadata(path).map(drop))?
        }
        Command::SyncIdle { file, count } => {
            let is_new = !file.exists();
            let mut file = OpenOptions::new().create(true).append(true).open(file)?;
            if is_new {
                file.write_all(&[7; 5000])?;
                file.sync_all()?;
            }
            times(0..*count, |_| file.sync_all())?
        }
    };
    println!("{}", json!({ "us": us }));
    Ok(())
}

fn name(number: usize) -> String {
    format!("entry-{number:06}")
}

fn times<T>(
    all: impl Iterator<Item = T>,
    mut call: impl FnMut(T) -> std::io::Result<()>,
) -> std::io::Result<Vec<f64>> {
    all.map(|one| {
        let start = Instant::now();
        call(one)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    })
    .collect()
}
