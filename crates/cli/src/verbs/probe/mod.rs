//! `onejournal probe`: measures a disk without a volume, and says what it is good for.
//!
//! The crate `probe` measures and judges. Here are the command, the report and its words.

mod place;
mod report;
mod text;
mod watching;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use probe::{AREA_BYTES_MIN, Area, Figures, Program, kib, measure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::place::{Permit, Place};
use self::report::Report;
use self::watching::Watch;
use crate::output::say_json;
use crate::output::{complain, plain_path};
use crate::signals::is_ignored;
use crate::units::bytes;
use crate::{CliError, Result, parse_interval, say, target};

/// Exit code: the disk is not suitable.
const NOT_SUITABLE: u8 = 1;
/// Exit code of a program that SIGINT ended, as shells show it.
const INTERRUPTED: u8 = 128 + 2;
/// The largest area.
const AREA_BYTES_MAX: u64 = 16 << 30;
/// The longest measurement.
const SECONDS_MAX: f64 = 3600.0;

#[derive(Args)]
pub struct ProbeArgs {
    /// Measure for about this long
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    seconds: f64,
    /// Size of the file that is written, or of the part of a device (4M to 16G)
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_area)]
    size: u64,
    /// Overwrite the beginning of the block device
    #[arg(long)]
    destroy: bool,
    /// With --destroy: also if the device is not empty
    #[arg(long, requires = "destroy")]
    force: bool,
    /// Exit with 0 if the disk is suitable for this program, with 1 if it is not
    #[arg(long = "for", value_name = "PROGRAM", value_parser = parse_program())]
    program: Option<Program>,
    /// The disk's cache survives a power cut, as its data sheet says: flushes may cost nothing
    #[arg(long)]
    protected_cache: bool,
    /// As JSON; with --watch, an object on each line
    #[arg(long)]
    json: bool,
    /// Write nothing: print how much is written to the disk, until interrupted
    #[arg(long, conflicts_with_all = ["seconds", "size", "destroy", "force"])]
    #[arg(conflicts_with_all = ["program", "protected_cache"])]
    watch: bool,
    /// With --watch: seconds from one line to the next
    #[arg(long, value_name = "SECONDS", default_value = "10", requires = "watch")]
    #[arg(value_parser = parse_interval)]
    interval: f64,
    /// With --watch: end after this number of intervals
    #[arg(long, value_name = "COUNT", requires = "watch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// With --watch: the rated endurance of the disk in terabytes written, as its data sheet says
    #[arg(long, value_name = "TERABYTES", requires = "watch", value_parser = parse_terabytes)]
    tbw: Option<f64>,
    /// A directory on the disk, or a block device
    #[arg(value_name = "DIR|DEVICE")]
    path: PathBuf,
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("give 0.1 to {SECONDS_MAX} seconds")),
    }
}

fn parse_area(text: &str) -> std::result::Result<u64, String> {
    match target::parse_size(text)? {
        size if (AREA_BYTES_MIN..=AREA_BYTES_MAX).contains(&size) => Ok(size),
        _ => Err("give 4M to 16G".into()),
    }
}

fn parse_program() -> impl TypedValueParser<Value = Program> {
    let program = |key: String| Program::ALL.into_iter().find(|program| program.key() == key);
    PossibleValuesParser::new(Program::ALL.map(Program::key))
        .map(move |key| program(key).expect("it is one of the possible values"))
}

fn parse_terabytes(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(terabytes) if (0.001..=1e9).contains(&terabytes) => Ok(terabytes),
        _ => Err("give the terabytes written of the data sheet, such as 600".into()),
    }
}

pub fn run(args: &ProbeArgs) -> Result<u8> {
    if args.watch {
        let watch = Watch {
            path: &args.path,
            interval: Duration::from_secs_f64(args.interval),
            count: args.count,
            tbw: args.tbw,
            as_json: args.json,
        };
        return watch.run();
    }
    let report = measured(args)?;
    if args.json {
        say_json!(report.json());
    } else {
        say!("{}", text::text(&report).trim_end());
    }
    Ok(exit_code(args.program, &report))
}

fn exit_code(program: Option<Program>, report: &Report) -> u8 {
    match program {
        Some(program) if !report.of_program(program).is_suitable => NOT_SUITABLE,
        _ => 0,
    }
}

/// Measures and judges. The signals that would end the process end the measurement.
fn measured(args: &ProbeArgs) -> Result<Report> {
    let path = args.path.as_path();
    let interrupted = interrupts()?;
    let permit = Permit::of(args.destroy, args.force);
    let Place { area, facts, cache } = Place::open(path, args.size, permit)?;
    announce(path, &area, args.seconds);
    let failed = |error| CliError::at(path, error);
    let time = Duration::from_secs_f64(args.seconds);
    let filled = area.fill(&interrupted);
    let measured = filled.and_then(|()| measure(&area, time, &interrupted));
    // Also if it was interrupted or has failed: what the device held is lost anyway.
    let marked = area.leave_mark();
    let measured = measured.map_err(failed)?;
    marked.map_err(failed)?;
    let figures = Figures::of(&measured).filter(|_| !interrupted.load(Ordering::Relaxed));
    let figures = figures.ok_or_else(|| {
        let why = format!("interrupted; {}", facts.kind.what_is_left());
        CliError { code: INTERRUPTED, ..CliError::at(path, why) }
    })?;
    Ok(Report::of(facts, cache, figures, args.protected_cache))
}

/// Is set by the first signal that is to end the command. The second one ends it at once. A signal
/// that is ignored stays so: `nohup` does that to SIGHUP.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let failed = |error: std::io::Error| CliError::new(format!("signals: {error}"));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        let (code, armed) = (INTERRUPTED.into(), interrupted.clone());
        signal_hook::flag::register_conditional_shutdown(signal, code, armed).map_err(failed)?;
        signal_hook::flag::register(signal, interrupted.clone()).map_err(failed)?;
    }
    Ok(interrupted)
}

/// Says before it begins how much is written.
fn announce(path: &Path, area: &Area, seconds: f64) {
    complain!(
        "onejournal: {}: measuring for about {seconds} s, after an area of {} was filled once; at \
         most {} are written",
        plain_path(path),
        kib(area.area_bytes()),
        bytes(area.write_bytes_max())
    );
}

#[cfg(test)]
mod tests {
    use probe::Cache;
    use probe::example::figures;

    use super::report::tests::facts;
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_program() {
        let report = |append_ns| {
            let mut figures = figures(20_000, 600_000);
            figures.append_sync.latency.p99_ns = append_ns;
            Report::of(facts(), Cache::Volatile, figures, false)
        };
        let (fast, slow) = (report(9_000_000), report(11_000_000));
        let codes = |program| [&fast, &slow].map(|report| exit_code(program, report));
        assert_eq!(codes(Some(Program::Etcd)), [0, 1]);
        assert_eq!(codes(Some(Program::Sqlite)), [0, 0]);
        assert_eq!(codes(None), [0, 0], "without --for nothing is judged by the exit code");
    }

    #[test]
    fn limits_of_the_options() {
        assert_eq!([parse_area("4M"), parse_area("16G")], [Ok(4 << 20), Ok(16 << 30)]);
        assert!(
            parse_area("3M").is_err() && parse_area("17G").is_err() && parse_area("x").is_err()
        );
        assert_eq!(parse_seconds("0.1"), Ok(0.1));
        assert!(["0", "-1", "nan", "1e9", "x"].iter().all(|text| parse_seconds(text).is_err()));
        assert_eq!(parse_terabytes("600"), Ok(600.0));
        assert!(["0", "nan", "inf"].iter().all(|text| parse_terabytes(text).is_err()));
    }
}
