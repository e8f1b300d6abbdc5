//! `onejournal logd`: serves a log directory until SIGTERM or SIGINT.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use device::Durability;
use log::{Limits, Options, Server, ServerOptions};

use crate::output::plain_path;
use crate::service_manager::notify;
use crate::signals::EndSignals;
use crate::verbs;
use crate::{CliError, Result, mention, messages, surroundings, target};

/// How often the daemon looks whether its shared memory is there.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct LogdArgs {
    /// Directory of the log; made when there is none
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Socket to listen at, named socket, NAME.sock or NAME.socket (default: DIR/socket)
    #[arg(long, value_name = "SOCKET", value_parser = parse_socket)]
    listen: Option<PathBuf>,
    /// Who may connect, as the permissions of the socket
    #[arg(long, value_name = "MODE", default_value = "666")]
    #[arg(value_parser = verbs::log::parse_mode)]
    mode: u32,
    /// Directory on NVRAM for the lanes of a new log
    #[arg(long, value_name = "DIR")]
    nvram: Option<PathBuf>,
    /// What that NVRAM survives, if it is not a power cut: process, reboot or power
    #[arg(long, value_name = "CLASS", value_parser = parse_durability)]
    durability: Option<Durability>,
    /// Size of the pool of a new log, shared by all lanes (default: 64M)
    #[arg(long, value_name = "SIZE", value_parser = target::parse_size)]
    pool: Option<u64>,
    /// Size of a log file of a new log, at most (default: 16M)
    #[arg(long, value_name = "SIZE", value_parser = target::parse_size)]
    segment: Option<u64>,
    /// Directory for the memory that processes share, when there is none yet: a tmpfs
    #[arg(long, value_name = "DIR")]
    memory: Option<PathBuf>,
    /// Bytes of records that a new stream may keep (default: any number)
    #[arg(long, value_name = "SIZE", value_parser = target::parse_size)]
    quota: Option<u64>,
    /// Connections of all users at a time (default: 1024)
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,
    /// Connections of each user at a time (default: 256)
    #[arg(long, value_name = "COUNT")]
    user_connections: Option<usize>,
    /// Chunks that each user may hold at a time (default: three quarters of the pool)
    #[arg(long, value_name = "COUNT")]
    user_chunks: Option<usize>,
    /// Prometheus text at http://ADDRESS:PORT/metrics; loopback addresses only
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_metrics)]
    metrics: Option<SocketAddr>,
}

fn parse_metrics(text: &str) -> std::result::Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    address.ok_or_else(|| "give a loopback address with a port, such as 127.0.0.1:9151".into())
}

/// A socket's name must be recognizable while no daemon runs.
fn parse_socket(text: &str) -> std::result::Result<PathBuf, String> {
    match log::names_socket(text) {
        true => Ok(text.into()),
        false => Err("name it socket, NAME.sock or NAME.socket".into()),
    }
}

fn parse_durability(text: &str) -> std::result::Result<Durability, String> {
    Durability::from_name(text).ok_or_else(|| "give process, reboot or power".into())
}

impl LogdArgs {
    fn options(&self) -> Options {
        let default = Options::default();
        Options {
            nvram: self.nvram.clone(),
            durability: self.durability,
            pool_bytes: self.pool.unwrap_or(default.pool_bytes),
            segment_bytes: self.segment.unwrap_or(default.segment_bytes),
            memory: self.memory.clone().unwrap_or(default.memory.clone()),
            ..default
        }
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            connection_count: self.connections.unwrap_or(default.connection_count),
            user_connection_count: self.user_connections.unwrap_or(default.user_connection_count),
            user_chunk_count: self.user_chunks,
            stream_bytes: self.quota.unwrap_or(default.stream_bytes),
            ..default
        }
    }
}

pub fn run(args: &LogdArgs) -> Result<u8> {
    messages::to_standard_error(tracing::Level::WARN);
    verbs::mount::abort_on_panic();
    let named = [&args.listen, &args.memory, &args.nvram].into_iter().flatten();
    named.chain([&args.dir]).try_for_each(|path| target::check_way(path))?;
    // Before there are threads, so that none of them is ended by a signal.
    let mut signals = EndSignals::catch()?;
    // A stream needs a descriptor for each log file, and a client needs one for its connection.
    surroundings::of_server();
    // The socket's mode says who may connect, so its directory has to have its own, too.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let socket = args.listen.clone().unwrap_or_else(|| args.dir.join("socket"));
    let server = ServerOptions { socket, mode: args.mode, limits: args.limits() };
    let server = Server::start(&args.dir, &args.options(), &server).map_err(verbs::log::failed)?;
    // Who has the log says more than who has the port.
    let metrics = args.metrics.map(verbs::mount::listen_for_metrics).transpose()?;
    mention!(
        "serving {} on {}, durability {}",
        plain_path(&args.dir),
        plain_path(server.socket()),
        server.stat().durability
    );
    notify("READY=1");
    let ended = match &metrics {
        Some(listener) => mount::serve_metrics_during(
            listener,
            &|| Some(verbs::log::metrics::render(&server)),
            || wait_for_end(&mut signals, &server),
        ),
        None => wait_for_end(&mut signals, &server),
    };
    notify("STOPPING=1");
    let stopped = server.stop().map_err(verbs::log::failed);
    ended.and(stopped).map(|()| 0)
}

/// Returns when a signal comes. An error when the shared memory was removed.
fn wait_for_end(signals: &mut EndSignals, server: &Server) -> Result<()> {
    while !signals.wait_until(Instant::now() + MEMORY_LOOK)? {
        if server.is_memory_gone() {
            return Err(CliError::new(
                "the shared memory of the log was removed. Nothing that was synced is lost: start \
                 the daemon again, which makes new memory. For a user's service, logind's \
                 RemoveIPC=no keeps it",
            ));
        }
    }
    Ok(())
}
