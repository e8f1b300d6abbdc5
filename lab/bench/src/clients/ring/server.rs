//! The ring on a Unix socket. A request is a length and the record; the answer is one byte.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};

use super::{RingdArgs, Service};
use crate::error::{Error, Result};

/// Serves until the input ends, or all clients have closed their connections.
pub fn run(args: &RingdArgs) -> Result<()> {
    let service = Service::start(&args.ring, &args.dir, args.size, args.clients)?;
    let listener = UnixListener::bind(&args.listen).map_err(Error::at(&args.listen))?;
    let mut output = std::io::stdout();
    writeln!(output, "ready").and_then(|()| output.flush()).map_err(Error::io("output"))?;
    let served = serve(&service, &listener, args.clients);
    let stopped = service.stop();
    let _ = std::fs::remove_file(&args.listen);
    served.and(stopped)
}

/// The logger: one thread for all clients.
fn serve(service: &Service, listener: &UnixListener, client_count: u32) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..client_count {
        let (client, _) = listener.accept().map_err(Error::io("a client"))?;
        clients.push((number, client));
    }
    let mut payload = Vec::new();
    while !clients.is_empty() {
        let mut wanted: Vec<_> =
            clients.iter().map(|(_, client)| PollFd::new(client, PollFlags::IN)).collect();
        poll(&mut wanted, None)
            .map_err(|errno| Error::Io { what: "poll".into(), source: errno.into() })?;
        let is_ready: Vec<bool> = wanted.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut gone = Vec::new();
        for ((number, client), _) in clients.iter_mut().zip(is_ready).filter(|(_, ready)| *ready) {
            if take(client, &mut payload).map_err(Error::io("a request"))? {
                service.log(*number, &payload)?;
                client.write_all(&[1]).map_err(Error::io("an answer"))?;
            } else {
                gone.push(*number);
            }
        }
        clients.retain(|(number, _)| !gone.contains(number));
    }
    Ok(())
}

/// One request; `false` when the client has gone.
fn take(client: &mut UnixStream, payload: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut length = [0; 4];
    match client.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    payload.resize(u32::from_le_bytes(length) as usize, 0);
    client.read_exact(payload)?;
    Ok(true)
}

/// A client of the service.
pub struct RingClient {
    socket: UnixStream,
    request: Vec<u8>,
}

impl RingClient {
    /// Connects.
    pub fn connect(path: &Path) -> Result<RingClient> {
        let socket = UnixStream::connect(path).map_err(Error::at(path))?;
        Ok(RingClient { socket, request: Vec::new() })
    }

    /// Returns when the record is in the ring.
    pub fn append(&mut self, payload: &[u8]) -> Result<()> {
        self.request.clear();
        self.request.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.request.extend_from_slice(payload);
        let sent = self.socket.write_all(&self.request);
        sent.and_then(|()| self.socket.read_exact(&mut [0]))
            .map_err(Error::io("the ring's service"))
    }
}
