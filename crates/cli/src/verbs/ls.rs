//! `onejournal ls`: the mounted and detached volumes, and the logs of this machine.

use clap::Args;
use serde_json::{Value, json};

use crate::inventory::{DetachedVolume, Logs, Mounts, SeenLog, SeenLogs, SeenMount, detached};
use crate::output::{complain, plain, say_json};
use crate::units::bytes;
use crate::{Result, say};

#[derive(Args)]
pub struct LsArgs {
    /// As JSON: an object with `mounts`, `detached`, `logs` and `more_logs`, the number of logs
    /// that are left out
    #[arg(long)]
    json: bool,
}

/// The advice for a detached volume.
const DETACHED_NOTE: &str = "A detached volume is mounted nowhere. It closes when the programs \
                             that use it have closed its files.\nTo close it at once: kill PID. \
                             The programs get errors then; nothing that was synced is lost.";

pub fn run(args: &LsArgs) -> Result<u8> {
    let mut all = Mounts::without_files();
    let mounts = all.look();
    let (detached, are_all) = detached();
    let seen = Logs::without_counters().look();
    if args.json {
        say_json!(json(&mounts, &detached, &seen));
    } else {
        say!("{}", tables(&mounts, &detached, &seen).trim_end());
    }
    for refusal in seen.logs.iter().filter_map(|log| log.refusal.as_ref()) {
        complain!("onejournal: {}", plain(refusal));
    }
    if !all.is_all() || !are_all || !seen.is_all {
        complain!(
            "onejournal: some may be missing: a process did not let itself be looked at in time, \
             or a user has too many mounts or open files"
        );
    }
    Ok(0)
}

fn json(mounts: &[SeenMount], detached: &[DetachedVolume], seen: &SeenLogs) -> String {
    let mounts: Vec<Value> = mounts.iter().map(mount_json).collect();
    let detached: Vec<Value> = detached.iter().map(detached_json).collect();
    let logs: Vec<Value> = seen.logs.iter().map(log_json).collect();
    let more = seen.left_out_count;
    let all = json!({ "mounts": mounts, "detached": detached, "logs": logs, "more_logs": more });
    format!("{all:#}")
}

fn tables(mounts: &[SeenMount], detached: &[DetachedVolume], seen: &SeenLogs) -> String {
    let mut tables = Vec::new();
    if !mounts.is_empty() {
        let heading =
            ["VOLUME", "MOUNTED ON", "STATE", "DATA", "DURABILITY", "PID", "FREE", "SIZE"];
        let rows: Vec<_> = mounts.iter().map(mount_row).collect();
        tables.push(lines(&heading, &rows).join("\n") + "\n");
    }
    if !detached.is_empty() {
        let rows: Vec<_> = detached.iter().map(detached_row).collect();
        let table = lines(&["DETACHED VOLUME", "PID", "USED BY"], &rows).join("\n");
        tables.push(format!("{table}\n{DETACHED_NOTE}\n"));
    }
    if !seen.logs.is_empty() || seen.left_out_count > 0 {
        let heading = ["LOG", "SERVED BY", "DURABILITY", "PID", "CLIENTS", "STREAMS", "LOG FILES"];
        let rows: Vec<_> = seen.logs.iter().map(log_row).collect();
        let mut lines = lines(&heading, &rows);
        if seen.left_out_count > 0 {
            lines.push(format!("... and {} more logs", seen.left_out_count));
        }
        tables.push(lines.join("\n") + "\n");
    }
    tables.join("\n")
}

fn mount_row(mount: &SeenMount) -> [String; 8] {
    let namespace = mount.namespace_pid.map(|pid| format!(" (in the namespace of process {pid})"));
    let text = |name: &str| mount.counters.text(name).unwrap_or("-").to_owned();
    let size = |name: &str| match mount.counters.number("space_bytes") {
        0 => "-".to_owned(),
        _ => bytes(mount.counters.number(name)),
    };
    [
        mount.target.display().to_string(),
        format!("{}{}", mount.dir.display(), namespace.unwrap_or_default()),
        mount.state.name().into(),
        text("data_mode"),
        text("durability"),
        mount.pid.map_or("-".into(), |pid| pid.to_string()),
        size("available_bytes"),
        size("space_bytes"),
    ]
}

fn detached_row(volume: &DetachedVolume) -> [String; 3] {
    [volume.target.display().to_string(), volume.pid.to_string(), volume.users()]
}

fn detached_json(volume: &DetachedVolume) -> Value {
    json!({
        "target": volume.target.to_string_lossy(),
        "pid": volume.pid,
        "user_pids": volume.user_pids(),
    })
}

fn mount_json(mount: &SeenMount) -> Value {
    let known = |name: &str| mount.counters.0.get(name).cloned().unwrap_or(Value::Null);
    json!({
        "target": mount.target.to_string_lossy(),
        "dir": mount.dir.to_string_lossy(),
        "namespace_pid": mount.namespace_pid,
        "state": mount.state,
        "data_mode": known("data_mode"),
        "durability": known("durability"),
        "pid": mount.pid,
        "mount_time_s": known("mount_time_s"),
        "space_bytes": known("space_bytes"),
        "free_bytes": known("free_bytes"),
        "available_bytes": known("available_bytes"),
        "last_error": known("last_error"),
    })
}

fn log_row(log: &SeenLog) -> [String; 7] {
    let pids = log.daemon_pid.map_or_else(|| log.pids.clone(), |pid| [pid].into());
    let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
    let file_bytes = log.look.as_ref().map_or(0, |look| look.streams.file_bytes);
    let stream_count = log.look.as_ref().map_or("-".into(), |look| look.streams.count.to_string());
    [
        log.dir.display().to_string(),
        if log.daemon_pid.is_some() { "daemon".into() } else { "its clients".into() },
        log.durability().into(),
        pids.join(","),
        log.client_count().to_string(),
        stream_count,
        bytes(file_bytes),
    ]
}

fn log_json(log: &SeenLog) -> Value {
    let streams = log.look.as_ref().map(|look| &look.streams);
    let nvram = log.look.as_ref().and_then(|look| look.nvram.as_ref());
    json!({
        "dir": log.dir.to_string_lossy(),
        "daemon_pid": log.daemon_pid,
        "socket": log.socket.as_ref().map(|path| path.to_string_lossy()),
        "client_pids": log.pids,
        "client_count": log.client_count(),
        "durability": log.look.as_ref().map(|look| look.durability.name()),
        "nvram": nvram.map(|path| path.to_string_lossy()),
        "pool_bytes": log.look.as_ref().map(|look| look.pool_bytes),
        "stream_count": streams.map(|streams| streams.count),
        "file_bytes": streams.map(|streams| streams.file_bytes),
        "error": log.refusal,
    })
}

/// A table whose columns are as wide as their content.
fn lines<const COUNT: usize>(heading: &[&str; COUNT], rows: &[[String; COUNT]]) -> Vec<String> {
    let heading = heading.map(str::to_owned);
    let all: Vec<&[String; COUNT]> = std::iter::once(&heading).chain(rows).collect();
    let width =
        |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COUNT).map(width).collect();
    let line = |row: &&[String; COUNT]| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{:width$}", plain(cell)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["/a".to_owned(), "x".into()], ["/much longer".into(), "µs".into()]];
        let expected = ["NAME          UNIT", "/a            x", "/much longer  µs"];
        assert_eq!(lines(&["NAME", "UNIT"], &rows), expected);
    }
}
