//! `onejournal stat`: the counters of a mounted volume or of a file, through a virtual attribute.

mod groups;
mod summary;
mod watch;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::counters::Counters;
use crate::inventory::{Answer, MountState, Subject, ask_once};
use crate::output::say_json;
use crate::output::{plain, plain_path};
use crate::volumes::ServedVolume;
use crate::{CliError, Result, StatArgs, kernel, say};

pub use summary::{Amplification, Flushes, written_since_ready};

pub fn run(args: &StatArgs) -> Result<u8> {
    if let Some(seconds) = args.watch {
        return watch::run(&args.path, seconds, args.json);
    }
    let answer = ask_once(&args.path, Subject::File)?;
    let (answer, place) = match answer.error {
        None => {
            let place = place_of(&answer);
            (answer, place)
        }
        Some(error) => read_of_target(&args.path)?.ok_or_else(|| CliError::new(error))?,
    };
    let Answer { counters: stat, state, is_image, .. } = answer;
    if args.json {
        say_json!(Value::Object(stat).to_string());
        return Ok(0);
    }
    let is_volume = stat.contains_key("version");
    if args.all || !is_volume {
        say!("{}", table("", &flatten("", &stat)).trim_end());
        return Ok(0);
    }
    let counters = Counters(stat);
    say!("{}", describe(&counters, state, place, is_image).trim_end());
    Ok(0)
}

/// The summary, then the groups.
fn describe(counters: &Counters, state: MountState, place: String, is_image: bool) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut summary =
        [vec![("served by".into(), place)], summary::lines(counters, state, now_s)].concat();
    let target = counters.text("target").unwrap_or_default();
    let labels = ["this kernel"].into_iter().chain(std::iter::repeat(""));
    let missing = kernel::missing(kernel::version(), counters);
    summary.extend(labels.map(String::from).zip(missing.into_iter().map(String::from)));
    if let Some(dir) = Path::new(target).parent().filter(|_| is_image) {
        let text = format!(
            "what the file system of the image adds; its disk: onejournal probe --watch {}",
            plain_path(dir)
        );
        summary.push(("not counted".into(), text));
    }
    let mut text = format!("{}\n{}", plain(target), table("  ", &summary));
    for (title, lines) in groups::groups(counters) {
        text.push_str(&format!("\n{title}\n{}", table("  ", &lines)));
    }
    text
}

/// Names and values, which a mount may have sent, below each other.
fn table(indent: &str, lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): &(String, String)| {
        format!("{indent}{:width$}  {}\n", plain(name), plain(value))
    };
    lines.iter().map(line).collect()
}

/// The process that serves the volume, and the place of its mount, as text for the user.
fn place_of(answer: &Answer) -> String {
    let pid = answer.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
    match &answer.mounted_on {
        Some(dir) => format!("process {pid}, mounted on {dir}"),
        None => format!("process {pid}"),
    }
}

/// The answer of a served volume in an image or on a device, with the process that serves it and
/// the place of its mount. `None` if it is not served.
fn read_of_target(path: &Path) -> Result<Option<(Answer, String)>> {
    let Some(volume) = ServedVolume::on_target(path)? else { return Ok(None) };
    let Some(daemon) = volume.daemon()? else { return Ok(None) };
    let place = format!("process {}, {}", daemon.pid, volume.whereabouts());
    let dirs: Vec<PathBuf> = volume.reachable_dirs();
    let mut answers = dirs.iter().filter_map(|dir| ask_once(dir, Subject::File).ok());
    match answers.find(|answer| !answer.counters.is_empty()) {
        Some(answer) => Ok(Some((answer, place))),
        None => Err(CliError::at(path, format!("{place}: its counters cannot be read"))),
    }
}

/// Names and values to print. A value inside an object is named `outer.inner`. Buckets are left
/// out, because they are for programs.
fn flatten(prefix: &str, stat: &Map<String, Value>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (name, value) in stat {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(inner) => lines.extend(flatten(&format!("{name}."), inner)),
            Value::Array(_) => {}
            Value::String(text) => lines.push((name, text.clone())),
            Value::Null => lines.push((name, "-".into())),
            other => lines.push((name, other.to_string())),
        }
    }
    lines
}
