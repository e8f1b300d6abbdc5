//! The daemon of a simulated machine. It may die at any step; then the next one is started.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::host::{Machine, SimHost};
use super::media::ChunkFile;
use crate::Result;
use crate::engine::service::Service;
use crate::host::Host;
use crate::server::Limits;
use crate::server::request_handler::RequestHandler;
use crate::wire::protocol::{Reply, Request, accepted, accepted_again};
use crate::wire::transport::Peer;
use fault::crash::{self, Crash, ProcessId};

pub(super) const DAEMON: ProcessId = ProcessId(0);

/// The daemon. There is none after it died.
pub(super) struct Daemon {
    machine: Arc<Machine>,
    process: RefCell<Option<Process>>,
}

struct Process {
    host: Arc<SimHost>,
    handler: RequestHandler,
}

/// The daemon's reply to a request: the answer, its descriptors, and the chunks that the
/// descriptors stand for.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) files: Vec<OwnedFd>,
    pub(super) chunks: Vec<Arc<ChunkFile>>,
}

impl Daemon {
    pub(super) fn new(machine: Arc<Machine>) -> Daemon {
        Daemon { machine, process: RefCell::new(None) }
    }

    /// The answer of this daemon. If it dies, the next daemon answers.
    pub(super) fn ask(&self, peer: &Peer, request: &Request) -> Result<Answer> {
        let mut is_again = false;
        loop {
            self.machine.take_handed();
            if let Some((reply, files)) = self.run(|handler| handler.answer(peer, request))? {
                let reply = match is_again {
                    true => accepted_again(request.kind, reply),
                    false => accepted(reply),
                };
                return reply.map(|reply| Answer {
                    reply,
                    files,
                    chunks: self.machine.take_handed(),
                });
            }
            is_again = true;
        }
    }

    /// Runs `f` in the daemon. Starts a daemon if there is none. `None`: it died.
    pub(super) fn run<T>(&self, f: impl FnOnce(&RequestHandler) -> T) -> Result<Option<T>> {
        self.start()?;
        let done = {
            let process = self.process.borrow();
            crash::run_process(DAEMON, || f(&process.as_ref().expect("started").handler))
        };
        if done.is_err() {
            self.kill();
        }
        Ok(done.ok())
    }

    fn start(&self) -> Result<()> {
        while self.process.borrow().is_none() {
            let host = self.machine.process();
            let limits = Limits { user_chunk_count: Some(16), ..Limits::default() };
            let service = Service::new(host.clone(), Duration::from_millis(200));
            match crash::run_process(DAEMON, || RequestHandler::new(Arc::new(service), limits)) {
                Ok(handler) => {
                    *self.process.borrow_mut() = Some(Process { host, handler: handler? })
                }
                Err(Crash) => host.die(),
            }
        }
        Ok(())
    }

    /// Ends the daemon as a kill does.
    pub(super) fn kill(&self) {
        if let Some(process) = self.process.borrow_mut().take() {
            process.host.die();
        }
    }

    /// Whether the directory has a stream with this name.
    pub(super) fn has_stream(&self, name: &str) -> Result<bool> {
        let streams = self.machine.process().streams()?;
        Ok(streams.iter().any(|(found, _)| found.as_str() == name))
    }
}
