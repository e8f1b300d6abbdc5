//! The JSON of `onejournal_stat()`: the counters of this process, and its open databases.

use serde::Serialize;

use crate::counters::{COUNTERS, Counters};
use crate::databases;

#[derive(Serialize)]
struct Stat {
    version: &'static str,
    #[serde(flatten)]
    counters: &'static Counters,
    databases: Vec<Database>,
}

#[derive(Serialize)]
struct Database {
    path: String,
    log_directory: String,
    log: Option<log::LogStat>,
    stream: Option<log::StreamStat>,
    /// Why it has no log in this process.
    no_log: Option<String>,
}

/// The counters and the open databases, as JSON.
pub fn to_json() -> String {
    let databases = databases::all().into_iter().map(|database| Database {
        path: database.path.display().to_string(),
        log_directory: database.settings.directory.display().to_string(),
        log: database.log().map(|log| log.stat()),
        stream: database.with_stream(|stream| Ok(stream.stat()?)).ok().flatten(),
        no_log: database.plain.get().cloned(),
    });
    let stat = Stat {
        version: env!("CARGO_PKG_VERSION"),
        counters: &COUNTERS,
        databases: databases.collect(),
    };
    serde_json::to_string(&stat).expect("plain data")
}
