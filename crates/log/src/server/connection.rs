//! The daemon's connections, each with a thread.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use device::sync::Mutex;
use host::Account;
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::request_handler::RequestHandler;
use super::turns::Turns;
use crate::warnings::Warnings;
use crate::wire::protocol::{Kind, REQUEST_BYTES, Reply, Request};
use crate::wire::transport::{self, Peer};

/// How long an answer waits for a client that does not read.
const SEND_WAIT: Duration = Duration::from_secs(10);
/// Stack of a connection's thread.
const STACK_BYTES: usize = 512 << 10;

/// All connections, and the state that their threads share.
pub(super) struct Connections {
    pub(super) handler: RequestHandler,
    pub(super) warnings: Warnings,
    turns: Turns,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Open>,
    ended: Vec<JoinHandle<()>>,
}

struct Open {
    socket: Arc<OwnedFd>,
    /// To whom it counts.
    user: Account,
    thread: Option<JoinHandle<()>>,
}

impl Connections {
    pub(super) fn new(handler: RequestHandler) -> Connections {
        Connections {
            handler,
            warnings: Warnings::new("warnings about connections"),
            turns: Turns::default(),
            table: Mutex::default(),
        }
    }

    /// Serves a client that has connected, unless there are too many.
    pub(super) fn begin(self: &Arc<Self>, socket: OwnedFd) {
        let Ok(peer) = Peer::of(&socket) else { return };
        let user = Account::of(peer.uid);
        let mut table = self.table.lock();
        let limits = &self.handler.limits;
        let own = table.open.values().filter(|open| open.user == user).count();
        let is_one_too_many = !user.is_trusted() && own >= limits.user_connection_count;
        if table.open.len() >= limits.connection_count || is_one_too_many {
            self.warnings.about(peer.uid, "too many connections");
            return;
        }
        let number = table.next;
        table.next += 1;
        let (uid, socket) = (peer.uid, Arc::new(socket));
        let (connections, its_socket) = (self.clone(), socket.clone());
        let body = move || {
            connections.serve(&its_socket, &peer);
            connections.end(number);
        };
        let builder = std::thread::Builder::new().name("log-client".into());
        match builder.stack_size(STACK_BYTES).spawn(crate::faults::carry(body)) {
            // The thread waits for the table before it ends.
            Ok(thread) => {
                table.open.insert(number, Open { socket, user, thread: Some(thread) });
            }
            Err(e) => self.warnings.about(uid, format_args!("a connection: {e}")),
        }
    }

    /// Carries out the client's requests until it disconnects or sends something that is not a
    /// request.
    fn serve(&self, socket: &OwnedFd, peer: &Peer) {
        if set_socket_timeout(socket, Timeout::Send, Some(SEND_WAIT)).is_err() {
            return;
        }
        let user = Account::of(peer.uid);
        let mut buf = [0; REQUEST_BYTES + 1];
        loop {
            let request = match transport::receive(socket, &mut buf) {
                Ok((0, _)) => return,
                Ok((_, files)) if !files.is_empty() => Err("descriptors in a request"),
                Ok((count, _)) => Request::decode(&buf[..count]),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => Err("a long message"),
                Err(_) => return,
            };
            let request = match request {
                Ok(request) => request,
                Err(why) => {
                    self.warnings.about(peer.uid, format_args!("{why}: the connection is closed"));
                    return;
                }
            };
            let is_long = matches!(request.kind, Kind::Read | Kind::Salvage);
            let _turn = (is_long && !user.is_trusted()).then(|| self.turns.take(user));
            let (reply, files) = self.handler.answer(peer, &request);
            if !files.is_empty() && !matches!(host::unread_bytes(socket), Ok(0)) {
                // Descriptors on their way are counted, and there is an end of them for all users.
                self.warnings.about(peer.uid, "answers are not read: the connection is closed");
                return;
            }
            if send(socket, &request, &reply, &files).is_err() {
                return;
            }
        }
    }

    /// The number of connections.
    pub(super) fn count(&self) -> usize {
        self.table.lock().open.len()
    }

    fn end(&self, number: u64) {
        let mut table = self.table.lock();
        if let Some(mut open) = table.open.remove(&number) {
            table.ended.extend(open.thread.take());
        }
    }

    /// Makes every thread end.
    pub(super) fn shut_all(&self) {
        for open in self.table.lock().open.values() {
            // It may be closed already.
            let _ = rustix::net::shutdown(&*open.socket, Shutdown::Both);
        }
    }

    /// Frees the resources of threads that have ended.
    pub(super) fn join_ended(&self) {
        let ended = std::mem::take(&mut self.table.lock().ended);
        for thread in ended {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }

    /// Waits until every thread has ended, after [`Connections::shut_all`].
    pub(super) fn join_all(&self) {
        self.shut_all();
        let threads: Vec<JoinHandle<()>> = {
            let mut table = self.table.lock();
            table.open.values_mut().filter_map(|open| open.thread.take()).collect()
        };
        for thread in threads {
            let _ = thread.join();
        }
        self.join_ended();
    }
}

fn send(socket: &OwnedFd, request: &Request, reply: &Reply, files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    transport::send(socket, &reply.encode(request.kind, files.len()), &files)?;
    reply.rest().try_for_each(|more| transport::send(socket, more, &[]))
}
