//! Reading a stream through the daemon, a megabyte at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::RemoteStream;
use crate::protocol::{Kind, RECORD_HEAD_BYTES, RawRecord, Reply, Request};
use crate::{LogError, Lsn, Reader, Record, Result, Usn};

/// Bytes that are asked for at once.
const READ_BYTES: u32 = 1 << 20;

/// Reads a stream of the daemon, or of the directory when the daemon stays away.
pub(crate) struct RemoteReader {
    stream: Arc<RemoteStream>,
    position: Lsn,
    /// Records from the position on that were read already, and where the next ones begin.
    read: VecDeque<Record>,
    behind: Lsn,
    local: Option<Box<Reader>>,
}

impl RemoteReader {
    pub(crate) fn new(stream: Arc<RemoteStream>, lsn: Lsn) -> Result<RemoteReader> {
        let (read, behind) = (VecDeque::new(), lsn);
        let mut reader = RemoteReader { stream, position: lsn, read, behind, local: None };
        // A position that is not there is an error now.
        match reader.fetch() {
            Ok(()) | Err(LogError::Damaged { .. }) => Ok(reader),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn position(&self) -> Lsn {
        self.local.as_ref().map_or(self.position, |local| Reader::position(local))
    }

    pub(crate) fn next_record(&mut self) -> Result<Option<Record>> {
        if self.read.is_empty() {
            self.fetch()?;
        }
        if let Some(local) = &mut self.local {
            return local.next_record();
        }
        let record = self.read.pop_front();
        if record.is_some() {
            self.position = self.read.front().map_or(self.behind, |next| next.lsn);
        }
        Ok(record)
    }

    fn fetch(&mut self) -> Result<()> {
        if self.local.is_some() {
            return Ok(());
        }
        let (stream, at) = (self.stream.id(), self.behind.0);
        let request = Request { stream, at, count: READ_BYTES, ..Request::new(Kind::Read) };
        let client = self.stream.client().clone();
        let fetched = self.stream.either(
            || {
                let (reply, _) = client.call(&request)?;
                Ok((parse(&reply)?, Lsn(reply.values[0]), None))
            },
            |local| Ok((Vec::new(), self.behind, Some(local.read_from(self.behind)?))),
        )?;
        let (records, behind, local) = fetched;
        self.read.extend(records);
        self.behind = behind;
        self.local = local.map(Box::new);
        Ok(())
    }
}

/// The records of an answer.
pub(crate) fn parse(reply: &Reply) -> Result<Vec<Record>> {
    let mut data = &reply.data[..];
    let cut = || LogError::Daemon("it sent records that are cut".into());
    let mut records = Vec::new();
    while !data.is_empty() {
        let (head, rest) = RawRecord::read_from_prefix(data).map_err(|_| cut())?;
        debug_assert_eq!(data.len() - rest.len(), RECORD_HEAD_BYTES);
        let payload_bytes = head.payload_bytes.get() as usize;
        let (payload, rest) = rest.split_at_checked(payload_bytes).ok_or_else(cut)?;
        let (lsn, usn) = (Lsn(head.lsn.get()), Usn(head.usn.get()));
        records.push(Record { lsn, usn, payload: payload.to_vec() });
        data = rest;
    }
    Ok(records)
}
