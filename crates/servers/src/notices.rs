//! A server's notice that it is ready, as a service manager would get it (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest time until a server must be ready, or must have recovered.
const BEGIN_LIMIT: Duration = Duration::from_secs(120);

/// The socket for the notices of one server. A server that sends more notices than are read blocks.
/// So this is dropped when such a server is ready.
pub struct Notices {
    socket: UnixDatagram,
    name: String,
}

impl Notices {
    /// A new socket.
    pub fn new() -> Result<Notices, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("onejournal-servers-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).map_err(|e| e.to_string())?;
        let socket = UnixDatagram::bind_addr(&address).map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(|e| e.to_string())?;
        Ok(Notices { socket, name })
    }

    /// Tells a server that will be started where to send them.
    pub fn apply(&self, server: &mut Command) {
        server.env("NOTIFY_SOCKET", format!("@{}", self.name));
    }

    /// Returns when the server `child` is ready. `has_failed` is asked all the time: a server that
    /// has failed may run on.
    pub fn wait(&self, child: &mut Child, has_failed: impl Fn() -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !self.is_ready() {
            if has_failed() {
                return Err("runs on after a failure".into());
            }
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("ended with {status}"));
            }
            if begin.elapsed() > BEGIN_LIMIT {
                return Err(format!("is not ready after {BEGIN_LIMIT:?}"));
            }
        }
        Ok(())
    }

    /// Whether the next notice, if one comes soon, says so.
    fn is_ready(&self) -> bool {
        let mut notice = [0; 1024];
        let received = self.socket.recv(&mut notice).unwrap_or(0);
        notice[..received].split(|byte| *byte == b'\n').any(|line| line == b"READY=1")
    }
}
