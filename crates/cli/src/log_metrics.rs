//! The counters of a log's daemon in the text format of Prometheus.

use log::Server;
use mount::MetricsText;

/// The page of `onejournal logd --metrics`.
pub fn render(server: &Server) -> String {
    let stat = server.stat();
    let mut text = MetricsText::default();
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("socket", &*server.socket().to_string_lossy()),
        ("durability", stat.durability),
        ("nvram", if stat.is_nvram { "1" } else { "0" }),
    ];
    text.info("log_info", "What is served and how.", &labels);
    let help = "1 after a failed write of the group log.";
    text.gauge("log_aborted", help, u8::from(stat.is_aborted));
    text.gauge("log_connections", "Connections of clients.", server.connection_count());
    text.gauge("log_open_streams", "Streams that are open.", server.open_stream_count());
    text.gauge("log_pool_bytes", "Size of the pool of lanes.", stat.pool_bytes);
    text.gauge("log_lent_bytes", "Bytes of the pool that are lent.", stat.lent_bytes);
    let help = "Appends that waited for a chunk of the pool.";
    text.counter("log_pool_waits_total", help, stat.pool_wait_count);
    let seconds = stat.pool_wait_ns as f64 / 1e9;
    text.counter(
        "log_pool_wait_seconds_total",
        "Time that appends waited for space in the pool.",
        seconds,
    );
    text.counter("log_group_commits_total", "Writes of the group log.", stat.group_commit_count);
    let help = "Streams that took part in them, in all.";
    text.counter("log_group_members_total", help, stat.group_member_count);
    text.counter("log_group_bytes_total", "Bytes written to the group log.", stat.group_bytes);
    text.counter("log_drains_total", "Drains that wrote something.", stat.drain_count);
    text.counter("log_drain_bytes_total", "Bytes they wrote to log files.", stat.drain_bytes);
    text.into_string()
}
