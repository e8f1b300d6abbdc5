//! The numbers of a log's daemon, and their page for Prometheus.

use log::{LogStat, Server};
use mount::Metric::{self, Counter, Gauge, Label};
use mount::Value::{Count, Flag};
use mount::{Number, Value, metrics_page};

type Str = &'static str;
type OfLog = fn(&(&Server, LogStat)) -> Value;

/// By their names for Prometheus.
#[rustfmt::skip]
pub static NUMBERS: &[Number<OfLog>] = &[
    row("version", Label, "The version of OneJournal.", |_| Value::text(env!("CARGO_PKG_VERSION"))),
    row("socket", Label, "Where the daemon listens.",
        |(server, _)| Value::text(server.socket().to_string_lossy())),
    row("durability", Label, "What a synced append survives.",
        |(_, log)| Value::text(log.durability)),
    row("nvram", Label, "1 if lanes are on NVRAM, or 0.",
        |(_, log)| Value::text(if log.is_nvram { "1" } else { "0" })),
    row("log_aborted", Gauge, "1 after a failed write of the group log.",
        |(_, log)| Flag(log.is_aborted)).more("The log accepts nothing any more."),
    row("log_connections", Gauge, "Connections of clients.",
        |(server, _)| Count(server.connection_count() as u64)),
    row("log_open_streams", Gauge, "Streams that are open.",
        |(server, _)| Count(server.open_stream_count() as u64)),
    row("log_pool_bytes", Gauge, "Size of the pool of lanes.", |(_, log)| Count(log.pool_bytes)),
    row("log_lent_bytes", Gauge, "Bytes of the pool that are lent.",
        |(_, log)| Count(log.lent_bytes)).more("Streams have them."),
    row("log_pool_waits", Counter, "Appends that waited for a chunk of the pool.",
        |(_, log)| Count(log.pool_wait_count)),
    row("log_pool_wait_ns", Counter, "Time that appends waited for space in the pool.",
        |(_, log)| Count(log.pool_wait_ns)).named("log_pool_wait_seconds_total"),
    row("log_group_commits", Counter, "Writes of the group log.",
        |(_, log)| Count(log.group_commit_count)),
    row("log_group_members", Counter, "Streams that took part in them, in all.",
        |(_, log)| Count(log.group_member_count)),
    row("log_group_bytes", Counter, "Bytes written to the group log.",
        |(_, log)| Count(log.group_bytes)),
    row("log_drains", Counter, "Drains that wrote something.", |(_, log)| Count(log.drain_count)),
    row("log_drain_bytes", Counter, "Bytes they wrote to log files.",
        |(_, log)| Count(log.drain_bytes)),
];

const fn row(name: Str, metric: Metric, help: Str, get: OfLog) -> Number<OfLog> {
    Number::new(name, metric, help, get)
}

/// The page of `onejournal logd --metrics`.
pub fn render(server: &Server) -> String {
    let seen = (server, server.stat());
    let numbers = NUMBERS.iter().map(|number| (number, (number.get)(&seen)));
    metrics_page(("log_info", "What is served and how."), numbers)
}
