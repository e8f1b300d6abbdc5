//! A log that a daemon serves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};

use device::Durability;
use device::sync::Mutex;

use super::chunks::{Ahead, start_fetcher};
use super::connection::{Client, ConnectOptions, OpenBackend};
use super::stream::RemoteStream;
use crate::backend::{LogBackend, StreamBackend};
use crate::types::RecordBatch;
use crate::wire::protocol::{Kind, Reply, Request, parse_records};
use crate::{LogError, LogStat, Lsn, Result, StreamName, clock};

/// A log that a daemon serves.
struct RemoteLog {
    client: Arc<Client>,
    /// The streams that are open in this process, by number.
    streams: Mutex<HashMap<u32, Weak<RemoteStream>>>,
    /// Sends requests to the thread that fetches chunks.
    fetcher: Sender<Arc<Ahead>>,
}

/// Connects to the daemon at `socket`. If no daemon answers and the options name a directory, opens
/// that directory with `open`.
pub(crate) fn connect(
    socket: &Path,
    options: &ConnectOptions,
    open: OpenBackend,
) -> Result<Box<dyn LogBackend>> {
    clock::read_offset();
    let client = match (Client::connect(socket, options, open), &options.fallback) {
        (Err(LogError::Daemon(_)), Some((path, options))) => return open(path, options),
        (client, _) => Arc::new(client?),
    };
    let fetcher = start_fetcher(Arc::downgrade(&client));
    Ok(Box::new(RemoteLog { client, streams: Mutex::default(), fetcher }))
}

impl RemoteLog {
    /// Number and owner of the daemon's stream `name`. `None`: there is none, and `is_new` says not
    /// to make one.
    fn open(&self, name: &StreamName, is_new: bool) -> Result<Option<Reply>> {
        let count = u32::from(is_new);
        let request = Request { name: name.to_string(), count, ..Request::new(Kind::Open) };
        match self.client.call(&request) {
            Ok((reply, _)) => Ok(Some(reply)),
            Err(LogError::NotFound(_)) if !is_new => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn remote_stream(&self, name: &StreamName, is_new: bool) -> Result<Option<Arc<RemoteStream>>> {
        let Some(reply) = self.open(name, is_new)? else { return Ok(None) };
        let id = u32::try_from(reply.values[0])
            .map_err(|_| LogError::Daemon("a stream without a number".into()))?;
        let mut streams = self.streams.lock();
        streams.retain(|_, stream| stream.strong_count() > 0);
        if let Some(stream) = streams.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(stream));
        }
        let stream = RemoteStream::new(self.client.clone(), self.fetcher.clone(), name.clone(), id);
        let stream = Arc::new(stream);
        streams.insert(id, Arc::downgrade(&stream));
        Ok(Some(stream))
    }

    fn remote_names(&self) -> Result<Vec<StreamName>> {
        let mut names: Vec<StreamName> = Vec::new();
        loop {
            let name = names.last().map(ToString::to_string).unwrap_or_default();
            let (reply, _) = self.client.call(&Request { name, ..Request::new(Kind::Streams) })?;
            let before = names.len();
            for name in String::from_utf8_lossy(&reply.data).lines() {
                names.push(name.parse()?);
            }
            if reply.values[0] == 0 || names.len() == before {
                return Ok(names);
            }
        }
    }

    fn remote_stat(&self) -> Result<LogStat> {
        let (reply, _) = self.client.call(&Request::new(Kind::ServiceStat))?;
        let stat = LogStat {
            durability: self.client.service.durability.name(),
            is_nvram: self.client.service.is_nvram,
            ..LogStat::default()
        };
        Ok(stat.with_numbers(&reply.values))
    }
}

impl LogBackend for RemoteLog {
    fn uuid(&self) -> &str {
        &self.client.service.uuid
    }

    fn copied_from(&self) -> &[String] {
        &self.client.service.copied_from
    }

    fn durability(&self) -> Durability {
        self.client.service.durability
    }

    fn open_stream(
        &self,
        name: &StreamName,
        is_new: bool,
    ) -> Result<Option<Arc<dyn StreamBackend>>> {
        let remote = || {
            let stream = self.remote_stream(name, is_new)?;
            Ok(stream.map(|stream| stream as Arc<dyn StreamBackend>))
        };
        self.client.either(remote, |log| log.open_stream(name, is_new))
    }

    fn stream_owner(&self, name: &StreamName) -> Result<Option<u32>> {
        let remote = || {
            let opened = self.open(name, false)?;
            let owner = opened.map(|reply| u32::try_from(reply.values[1]));
            let none = |_| LogError::Daemon("a stream whose owner is no user".into());
            owner.transpose().map_err(none)
        };
        self.client.either(remote, |log| log.stream_owner(name))
    }

    fn stream_names(&self) -> Result<Vec<StreamName>> {
        self.client.either(|| self.remote_names(), |log| log.stream_names())
    }

    fn remove_stream(&self, name: &StreamName) -> Result<()> {
        let request = Request { name: name.to_string(), ..Request::new(Kind::Remove) };
        self.client.either(|| self.client.call(&request).map(drop), |log| log.remove_stream(name))
    }

    fn salvage(&self, name: &StreamName, from: Lsn) -> Result<RecordBatch> {
        let name_text = name.to_string();
        let request = Request { name: name_text, at: from.0, ..Request::new(Kind::Salvage) };
        let remote = || {
            let (reply, _) = self.client.call(&request)?;
            Ok(RecordBatch { records: parse_records(&reply)?, next: Lsn(reply.values[0]) })
        };
        self.client.either(remote, |log| log.salvage(name, from))
    }

    fn discard_damaged(&self, name: &StreamName) -> Result<Lsn> {
        let request = Request { name: name.to_string(), ..Request::new(Kind::Discard) };
        let remote = || self.client.call(&request).map(|(reply, _)| Lsn(reply.values[0]));
        self.client.either(remote, |log| log.discard_damaged(name))
    }

    fn stat(&self) -> Result<LogStat> {
        self.client.either(|| self.remote_stat(), |log| log.stat())
    }

    fn known_stat(&self) -> LogStat {
        let service = &self.client.service;
        LogStat {
            durability: service.durability.name(),
            is_nvram: service.is_nvram,
            pool_bytes: service.sizes.pool_bytes,
            chunk_bytes: service.sizes.chunk_bytes,
            ..LogStat::default()
        }
    }

    /// Brings everything that this process appended to the log files, and releases the leases.
    fn close(self: Box<Self>) -> Result<()> {
        let open: Vec<_> = self.streams.lock().values().filter_map(Weak::upgrade).collect();
        let mut home = Ok(());
        for stream in open {
            home = home.and(stream.flush_own());
            stream.release();
        }
        home
    }
}
