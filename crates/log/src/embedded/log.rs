//! A log that this process serves, perhaps together with other processes.

use std::path::Path;
use std::sync::Arc;

use device::Durability;

use super::membership::{Joined, Membership};
use super::stream::EmbeddedStream;
use crate::backend::{LogBackend, StreamBackend};
use crate::directory::options::Options;
use crate::engine::worker::{Rounds, Worker};
use crate::error::{LogError, Result};
use crate::host::StreamMeta;
use crate::stat::LogStat;
use crate::stream_name::StreamName;
use crate::types::{Lsn, RecordBatch};

/// A log that this process serves, perhaps together with other processes.
pub(crate) struct EmbeddedLog {
    membership: Arc<Membership>,
    uuid: String,
    copied_from: Vec<String>,
    durability: Durability,
    /// Stopped before the service is left.
    worker: Worker,
}

impl EmbeddedLog {
    /// Joins the service in the directory `path`; makes it with `options` if there is none.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<EmbeddedLog> {
        let membership = Arc::new(Membership::new(path, options)?);
        let (uuid, copied_from, durability) = {
            let service = &membership.now().service;
            let settings = service.host.settings();
            (settings.uuid.clone(), settings.copied_from.clone(), service.durability())
        };
        let (its_membership, mut rounds) = (membership.clone(), Rounds::new());
        let round = move || run_round(&its_membership, &mut rounds);
        let worker = Worker::start(membership.wakeup().clone(), round)?;
        Ok(EmbeddedLog { membership, uuid, copied_from, durability, worker })
    }

    #[cfg(test)]
    pub(crate) fn service(&self) -> Arc<crate::engine::service::Service> {
        self.membership.now().service.clone()
    }
}

/// A round of the flush worker, which also notices that the shared memory was removed.
fn run_round(membership: &Membership, rounds: &mut Rounds) {
    {
        let now = membership.now();
        if !now.has_left && !now.is_memory_gone() {
            rounds.round(&now.service);
            return;
        }
    }
    if let Err(e) = membership.renew() {
        // Each operation tries again, and so does the next round.
        tracing::debug!("new shared memory: {e}");
    }
}

/// What is known of the stream `name`. An error if there is no such stream.
fn named(joined: &Joined, name: &StreamName) -> Result<StreamMeta> {
    let none = || LogError::NotFound(format!("there is no stream {name}"));
    joined.service.host.stream(name)?.ok_or_else(none)
}

impl LogBackend for EmbeddedLog {
    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn copied_from(&self) -> &[String] {
        &self.copied_from
    }

    fn is_current(&self) -> bool {
        self.membership.now().directory.is_current()
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn open_stream(
        &self,
        name: &StreamName,
        is_new: bool,
    ) -> Result<Option<Arc<dyn StreamBackend>>> {
        self.membership.run(|now| {
            let host = &now.service.host;
            let meta = match host.stream(name)? {
                Some(meta) => meta,
                None if is_new => host.create_stream(name, &new_stream())?,
                None => return Ok(None),
            };
            let lane = now.service.lane(name, &meta)?;
            let binding = self.membership.bind(&now.service, lane);
            Ok(Some(EmbeddedStream::of(self.membership.clone(), name.clone(), binding)))
        })
    }

    fn stream_owner(&self, name: &StreamName) -> Result<Option<u32>> {
        let owner = self.membership.now().directory.owner();
        let meta = self.membership.run(|now| now.service.host.stream(name))?;
        Ok(meta.map(|meta| if owner == 0 { meta.uid } else { owner }))
    }

    fn stream_names(&self) -> Result<Vec<StreamName>> {
        let streams = self.membership.run(|now| now.service.host.streams())?;
        let mut names: Vec<_> = streams.into_iter().map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }

    fn remove_stream(&self, name: &StreamName) -> Result<()> {
        self.membership.run(|now| now.service.remove_named(name, now.service.host.stream(name)?))
    }

    fn salvage(&self, name: &StreamName, from: Lsn) -> Result<RecordBatch> {
        self.membership.run(|now| now.service.salvage(name, &named(now, name)?, from))
    }

    fn discard_damaged(&self, name: &StreamName) -> Result<Lsn> {
        self.membership.run(|now| now.service.discard_damaged(name, &named(now, name)?))
    }

    fn stat(&self) -> Result<LogStat> {
        Ok(self.membership.now().service.stat())
    }

    fn known_stat(&self) -> LogStat {
        self.membership.now_if_free().map(|now| now.service.stat()).unwrap_or_default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let EmbeddedLog { membership, worker, .. } = *self;
        drop(worker);
        bring_home(&membership.now())?;
        // Streams or readers of the log may be open.
        let Ok(membership) = Arc::try_unwrap(membership) else { return Ok(()) };
        let Joined { service, directory, has_left } = membership.into_joined();
        match Arc::try_unwrap(service) {
            Ok(_) if has_left => Ok(()),
            Ok(service) if service.host.is_memory_gone() => directory.leave(),
            Ok(service) if service.forget_all() => directory.release_memory(|| service.retire()),
            _ => Ok(()),
        }
    }
}

/// Brings what this process appended to the log files.
fn bring_home(now: &Joined) -> Result<()> {
    match now.has_left {
        // It did so when it left.
        true => Ok(()),
        false if now.is_memory_gone() => now.service.bring_home_or_sync(),
        false => now.service.bring_own_home(),
    }
}

fn new_stream() -> StreamMeta {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    StreamMeta { id: 0, salt: fastrand::u64(..), uid, gid, mode: 0o600, quota_bytes: 0 }
}
