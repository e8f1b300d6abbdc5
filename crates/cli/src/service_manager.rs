//! Notifies the service manager (sd_notify(3)): sends one datagram to the socket that the
//! environment names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends `state`, such as `READY=1`, if a service manager started this process and listens.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return;
    };
    if let Err(error) = send_datagram(&path, state.as_bytes()) {
        tracing::warn!("NOTIFY_SOCKET: {error}");
    }
}

fn send_datagram(path: &OsStr, bytes: &[u8]) -> std::io::Result<()> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    socket.send_to_addr(bytes, &address).map(|_| ())
}
