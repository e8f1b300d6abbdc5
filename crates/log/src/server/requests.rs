//! Carries out the requests of clients.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::Account;

use super::access::{Wish, check};
use super::request_handler::{Promise, RequestHandler};
use crate::engine::lane::Lane;
use crate::host::StreamMeta;
use crate::types::{READ_BYTES, RecordBatch};
use crate::wire::protocol::{
    DATA_BYTES_MAX, FILES_MAX, Kind, Reply, Request, encode_records, refusal,
};
use crate::wire::transport::Peer;
use crate::{LogError, Lsn, Record, Result, StreamId, StreamName};

/// An answer and the descriptors that go with it.
type Answer = (Reply, Vec<OwnedFd>);

impl RequestHandler {
    /// Carries out a request, and returns its answer.
    pub(crate) fn answer(&self, peer: &Peer, request: &Request) -> Answer {
        self.carry_out(peer, request).unwrap_or_else(|e| (refusal(&e), Vec::new()))
    }

    fn carry_out(&self, peer: &Peer, request: &Request) -> Result<Answer> {
        let numbers = |values: &[u64]| Ok((Reply::of(values), Vec::new()));
        let stream = |wish| self.stream(peer, request.stream, wish);
        match request.kind {
            Kind::Hello => Ok((self.hello(), Vec::new())),
            Kind::Open => self.open(peer, request),
            Kind::Lease => self.lease(peer, &stream(Wish::Write)?),
            Kind::Allocate => self.allocate(peer, request, &stream(Wish::Write)?),
            Kind::ExtendUsn => {
                let lane = stream(Wish::Write)?;
                self.service.extend_usn()?;
                self.service.refresh_usn(&lane.words);
                numbers(&[lane.words.usn_base(), lane.words.usn_limit()])
            }
            Kind::Sync => {
                let lane = stream(Wish::Write)?;
                believe(&lane)?;
                self.service.sync(&lane, Lsn(request.at))?;
                numbers(&[lane.durable()])
            }
            Kind::Flush => {
                let lane = stream(Wish::Write)?;
                self.service.drain(&lane)?;
                numbers(&[lane.durable()])
            }
            Kind::Release => {
                let lane = stream(Wish::Write)?;
                let _writer = lane.writer.lock();
                if self.service.has_lease(&lane, request.token, peer.uid) {
                    self.service.end_remote(&lane)?;
                }
                numbers(&[])
            }
            Kind::Read => self.read(request, &*stream(Wish::Read)?),
            Kind::Stat => numbers(&stream(Wish::Know)?.stat()?.numbers()),
            Kind::ServiceStat => numbers(&self.service.stat().numbers()),
            Kind::Streams => self.streams(peer, request),
            Kind::Remove => {
                let name = request.name.parse()?;
                let meta = self.service.host.stream(&name)?;
                meta.iter().try_for_each(|meta| check(&name, meta, peer, Wish::Own))?;
                self.service.remove_named(&name, meta)?;
                numbers(&[])
            }
            Kind::Truncate => {
                self.service.truncate_before(&*stream(Wish::Write)?, Lsn(request.at))?;
                numbers(&[])
            }
            Kind::StreamHeader => {
                let lane = stream(Wish::Know)?;
                let header = match lane.remote()? {
                    Some(remote) => remote.header()?,
                    None => lane.words.header(),
                };
                Ok((Reply { data: header.to_vec(), ..Reply::default() }, Vec::new()))
            }
            Kind::Salvage => {
                let (name, meta) = self.find(peer, request, Wish::Read)?;
                let RecordBatch { records, next } =
                    self.service.salvage(&name, &meta, Lsn(request.at))?;
                Ok(records_reply(&[next.0], &records))
            }
            Kind::Discard => {
                let (name, meta) = self.find(peer, request, Wish::Own)?;
                numbers(&[self.service.discard_damaged(&name, &meta)?.0])
            }
        }
    }

    fn hello(&self) -> Reply {
        let settings = self.service.host.settings();
        let names = [std::slice::from_ref(&settings.uuid), &settings.copied_from].concat();
        let class = self.service.durability();
        let values = [
            settings.chunk_bytes,
            settings.pool_bytes(),
            u64::from(self.service.host.nvram().is_some()),
            class as u64,
        ];
        Reply { data: names.join("\n").into_bytes(), ..Reply::of(&values) }
    }

    /// The lane of stream `id`. An error if `peer` may not do `wish`.
    fn stream(&self, peer: &Peer, id: u32, wish: Wish) -> Result<Arc<Lane>> {
        let none = || LogError::NotFound(format!("there is no stream number {id}"));
        if u64::from(id) >= self.service.control.next_stream() {
            return Err(none());
        }
        let lane = self.service.lane_of(StreamId(id))?.ok_or_else(none)?;
        check(&lane.name, &lane.meta, peer, wish)?;
        Ok(lane)
    }

    /// The stream that the request names. It may be damaged.
    fn find(&self, peer: &Peer, request: &Request, wish: Wish) -> Result<(StreamName, StreamMeta)> {
        let name: StreamName = request.name.parse()?;
        let meta = self.service.host.stream(&name)?;
        let meta = meta.ok_or_else(|| LogError::NotFound(format!("there is no stream {name}")))?;
        check(&name, &meta, peer, wish)?;
        Ok((name, meta))
    }

    fn open(&self, peer: &Peer, request: &Request) -> Result<Answer> {
        let name: StreamName = request.name.parse()?;
        let meta = match self.service.host.stream(&name)? {
            Some(meta) => meta,
            None if request.count == 0 => {
                return Err(LogError::NotFound(format!("there is no stream {name}")));
            }
            None => {
                self.made.count(peer.uid, self.limits.user_stream_count)?;
                let (uid, gid) = (peer.uid, peer.gid);
                let (salt, quota_bytes) = (fastrand::u64(..), self.limits.stream_bytes);
                let meta = StreamMeta { id: 0, salt, uid, gid, mode: 0o600, quota_bytes };
                self.service.host.create_stream(&name, &meta)?
            }
        };
        check(&name, &meta, peer, Wish::Know)?;
        self.service.lane(&name, &meta)?;
        Ok((Reply::of(&[u64::from(meta.id), u64::from(meta.uid)]), Vec::new()))
    }

    fn lease(&self, peer: &Peer, lane: &Arc<Lane>) -> Result<Answer> {
        let grant = self.service.lease_out(lane, peer.uid)?;
        let values = [grant.token, grant.position, lane.meta.salt];
        Ok((Reply::of(&values), vec![grant.words.into()]))
    }

    /// Allocates chunks from span `at` on. Either one, for which it waits, or up to `count` if many
    /// are free.
    fn allocate(&self, peer: &Peer, request: &Request, lane: &Arc<Lane>) -> Result<Answer> {
        let _writer = lane.writer.lock();
        if !self.service.has_lease(lane, request.token, peer.uid) {
            let name = &lane.name;
            return Err(LogError::Aborted(format!("stream {name}: its lease is another's now")));
        }
        believe(lane)?;
        let user = Account::of(peer.uid);
        if request.count != 0 {
            return self.allocate_early(user, lane, request.at, request.count);
        }
        // If this fails, the whole append fails, and its chunks are freed. Otherwise writers that
        // each hold a part of the chunks they need would wait for each other for ever.
        let allocated = self.allocate_now(user, lane, request.at);
        let allocated = allocated.inspect_err(|_| self.service.free_unused(lane))?;
        Ok((Reply::of(&[1]), vec![allocated]))
    }

    fn allocate_now(&self, user: Account, lane: &Lane, ordinal: u64) -> Result<OwnedFd> {
        let _promise = match lane.words.chunk(ordinal) {
            Some(_) => None,
            None => {
                let promise = self.wait_for_share(user, lane)?;
                check_quota(lane, ordinal, self.service.host.settings().chunk_bytes)?;
                Some(promise)
            }
        };
        self.allocate_one(lane, ordinal)
    }

    fn allocate_early(&self, user: Account, lane: &Lane, at: u64, count: u32) -> Result<Answer> {
        let mut files = Vec::new();
        for ordinal in (0..count.min(FILES_MAX as u32)).map(|n| at.saturating_add(u64::from(n))) {
            let mut promise = None;
            if lane.words.chunk(ordinal).is_none() {
                promise = self.promise_early(user, lane, ordinal);
                if promise.is_none() {
                    break;
                }
                check_quota(lane, ordinal, self.service.host.settings().chunk_bytes)?;
            }
            files.push(self.allocate_one(lane, ordinal)?);
            drop(promise);
        }
        Ok((Reply::of(&[files.len() as u64]), files))
    }

    /// Allocates a chunk and opens it, with a descriptor that nothing else uses.
    fn allocate_one(&self, lane: &Lane, ordinal: u64) -> Result<OwnedFd> {
        let index = self.service.allocate_for_client(lane, ordinal)?;
        let file = self.service.host.chunk_file(index)?;
        // While its file was opened a client that fills it at the same time may have freed it, and
        // another got it: spans are allocated once, so if it is the span's still it was all the
        // time.
        match lane.words.chunk(ordinal) {
            Some(still) if still == index => Ok(file),
            _ => Err(LogError::Busy(lane.name.to_string())),
        }
    }

    fn user_chunk_limit(&self, user: Account) -> usize {
        match user.is_trusted() {
            true => usize::MAX,
            false => self.limits.user_chunk_count.unwrap_or(self.pool_chunk_count() * 3 / 4),
        }
    }

    /// Promises a chunk that a client does not need yet. Only for the next span, and never from the
    /// last quarter of the pool or of the user's share.
    fn promise_early(&self, user: Account, lane: &Lane, ordinal: u64) -> Option<Promise<'_>> {
        let has_plenty = ordinal == self.service.next_ordinal(lane)
            && self.service.allocated_count() < self.pool_chunk_count() * 3 / 4;
        let limit = match self.user_chunk_limit(user) {
            usize::MAX => usize::MAX,
            limit => limit / 4 * 3,
        };
        has_plenty.then(|| self.promise(user, limit)).flatten()
    }

    /// Waits until the user has less than its share of the pool, and promises it a chunk.
    fn wait_for_share(&self, user: Account, lane: &Lane) -> Result<Promise<'_>> {
        let (begin, limit) = (Instant::now(), self.user_chunk_limit(user));
        loop {
            if let Some(promise) = self.promise(user, limit) {
                return Ok(promise);
            }
            let freed = self.service.control.freed();
            self.service.drain(lane)?;
            if let Some(promise) = self.promise(user, limit) {
                return Ok(promise);
            }
            if begin.elapsed() >= self.service.full_wait {
                return Err(LogError::Full {
                    pool_bytes: limit as u64 * self.service.host.settings().chunk_bytes,
                    waited_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
                });
            }
            self.service.control.wait_freed(freed, Duration::from_millis(20));
        }
    }

    fn read(&self, request: &Request, lane: &Lane) -> Result<Answer> {
        let at = Lsn(request.at);
        lane.check_position(at)?;
        let RecordBatch { records, next } =
            lane.read_records(at, READ_BYTES.min(request.count as usize))?;
        Ok(records_reply(&[next.0], &records))
    }

    /// The names of the streams after `name` that the peer may know, in order.
    fn streams(&self, peer: &Peer, request: &Request) -> Result<Answer> {
        let mut names: Vec<String> = self
            .service
            .host
            .streams()?
            .into_iter()
            .filter(|(name, meta)| check(name, meta, peer, Wish::Know).is_ok())
            .map(|(name, _)| name.to_string())
            .filter(|name| *name > request.name)
            .collect();
        names.sort_unstable();
        let mut data = Vec::new();
        let mut count = 0;
        for name in &names {
            if data.len() + name.len() + 1 > DATA_BYTES_MAX {
                break;
            }
            data.extend_from_slice(name.as_bytes());
            data.push(b'\n');
            count += 1;
        }
        let is_more = u64::from(count < names.len());
        Ok((Reply { data, ..Reply::of(&[is_more]) }, Vec::new()))
    }
}

/// Takes over what a client reports. If the report cannot be true, aborts its stream.
fn believe(lane: &Lane) -> Result<()> {
    lane.check()?;
    lane.pull().inspect_err(|e| lane.abort_after(e))
}

/// An error if the stream's records would take more space than its quota.
fn check_quota(lane: &Lane, ordinal: u64, chunk_bytes: u64) -> Result<()> {
    let quota = lane.meta.quota_bytes;
    let end = ordinal.saturating_add(1).saturating_mul(chunk_bytes);
    let wanted = end.saturating_sub(lane.words.head());
    if quota == 0 || wanted <= quota {
        return Ok(());
    }
    let text = format!("would take {wanted} bytes of its quota of {quota}: truncate it");
    Err(LogError::Denied(format!("stream {}: {text}", lane.name)))
}

/// An answer of numbers, with records as its data.
fn records_reply(values: &[u64], records: &[Record]) -> Answer {
    (Reply { data: encode_records(records), ..Reply::of(values) }, Vec::new())
}
