//! Requests and answers between a client and the daemon, over a socket that keeps messages apart.
//!
//! A request has 160 bytes. An answer has 128 bytes and data after them, in several messages if it
//! is long.
//!
//! The daemon keeps nothing of a client between two requests, and each request can be carried out
//! twice. So a client may send a request again, to the same daemon or to the next one. The daemon
//! decides by two proofs what a client may do: its user, which the kernel names, and the token of
//! its lease. `docs/format/log-protocol.md` has the table.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::stream_name::NAME_BYTES_MAX;
use crate::{LogError, Lsn, Record, Result, Usn};

pub(crate) const VERSION: u16 = 1;
/// Most data bytes of one message. Longer data comes in several messages.
pub(crate) const DATA_BYTES_MAX: usize = 64 << 10;
/// Most data bytes of an answer with records that a client accepts. A daemon sends about one
/// mebibyte of records, and a larger single record as a whole.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Most descriptors that come with an answer.
pub(crate) const FILES_MAX: usize = 8;
/// How many numbers an answer has.
pub(crate) const VALUES: usize = 14;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Hello = 1,
    Open = 2,
    Lease = 3,
    Allocate = 4,
    ExtendUsn = 5,
    Sync = 6,
    Flush = 7,
    Release = 8,
    Read = 9,
    Stat = 10,
    ServiceStat = 11,
    Streams = 12,
    Remove = 13,
    Truncate = 14,
    StreamHeader = 15,
    Salvage = 16,
    Discard = 17,
}

impl Kind {
    const ALL: [Kind; 17] = [
        Kind::Hello,
        Kind::Open,
        Kind::Lease,
        Kind::Allocate,
        Kind::ExtendUsn,
        Kind::Sync,
        Kind::Flush,
        Kind::Release,
        Kind::Read,
        Kind::Stat,
        Kind::ServiceStat,
        Kind::Streams,
        Kind::Remove,
        Kind::Truncate,
        Kind::StreamHeader,
        Kind::Salvage,
        Kind::Discard,
    ];

    fn of(number: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u16 == number)
    }

    /// Most bytes after the first message of an answer. Only answers with records are long: a
    /// client that looks at many logs does not trust their daemons.
    fn rest_bytes_max(self) -> usize {
        match self {
            Kind::Read | Kind::Salvage => ANSWER_BYTES_MAX,
            _ => 0,
        }
    }
}

/// A request as it is sent.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawRequest {
    version: U16,
    kind: U16,
    stream: U32,
    token: U64,
    at: U64,
    count: U32,
    name_bytes: U32,
    name: [u8; NAME_BYTES_MAX],
}

pub(crate) const REQUEST_BYTES: usize = 160;
const _: () = assert!(size_of::<RawRequest>() == REQUEST_BYTES);

/// A request. Fields that its kind does not use are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// Number of a stream.
    pub(crate) stream: u32,
    /// The token of the lease.
    pub(crate) token: u64,
    /// An LSN, or the ordinal of a span.
    pub(crate) at: u64,
    /// The most that is wanted, or 1 for yes.
    pub(crate) count: u32,
    /// Name of a stream.
    pub(crate) name: String,
}

impl Request {
    pub(crate) fn new(kind: Kind) -> Request {
        Request { kind, stream: 0, token: 0, at: 0, count: 0, name: String::new() }
    }

    pub(crate) fn encode(&self) -> RawRequest {
        let mut name = [0; NAME_BYTES_MAX];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        RawRequest {
            version: U16::new(VERSION),
            kind: U16::new(self.kind as u16),
            stream: U32::new(self.stream),
            token: U64::new(self.token),
            at: U64::new(self.at),
            count: U32::new(self.count),
            name_bytes: U32::new(u32::try_from(self.name.len()).expect("128 at most")),
            name,
        }
    }

    /// The request in `bytes`. An error if no client of this version sends such bytes.
    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Request, &'static str> {
        let raw = RawRequest::read_from_bytes(bytes).map_err(|_| "a message of another length")?;
        if raw.version.get() != VERSION {
            return Err("another version of the protocol");
        }
        let kind = Kind::of(raw.kind.get()).ok_or("an unknown request")?;
        let name_bytes = usize::try_from(raw.name_bytes.get()).map_err(|_| "a long name")?;
        let name = raw.name.get(..name_bytes).ok_or("a name that is too long")?;
        let name = std::str::from_utf8(name).map_err(|_| "a name that is no text")?.to_owned();
        let (token, at) = (raw.token.get(), raw.at.get());
        let (stream, count) = (raw.stream.get(), raw.count.get());
        Ok(Request { kind, stream, token, at, count, name })
    }
}

/// An answer as it is sent.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawReply {
    version: U16,
    kind: U16,
    status: U16,
    file_count: U16,
    data_bytes: U32,
    rest_bytes: U32,
    values: [U64; VALUES],
}

pub(crate) const REPLY_BYTES: usize = 128;
const _: () = assert!(size_of::<RawReply>() == REPLY_BYTES);

/// An answer, without the descriptors that come with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// 0, or the number of an error.
    pub(crate) status: u16,
    pub(crate) values: [u64; VALUES],
    pub(crate) data: Vec<u8>,
}

impl Reply {
    /// An answer of success, with these numbers.
    pub(crate) fn of(values: &[u64]) -> Reply {
        let mut reply = Reply::default();
        reply.values[..values.len()].copy_from_slice(values);
        reply
    }

    /// The data in the answer's first message, and the data in later ones.
    fn parts(&self) -> (&[u8], &[u8]) {
        self.data.split_at(self.data.len().min(DATA_BYTES_MAX))
    }

    /// The answer's first message.
    pub(crate) fn encode(&self, kind: Kind, file_count: usize) -> Vec<u8> {
        let (data, rest) = self.parts();
        let raw = RawReply {
            version: U16::new(VERSION),
            kind: U16::new(kind as u16),
            status: U16::new(self.status),
            file_count: U16::new(u16::try_from(file_count).expect("a few")),
            data_bytes: U32::new(u32::try_from(data.len()).expect("64 KiB at most")),
            rest_bytes: U32::new(
                u32::try_from(rest.len()).expect("bounded by what is read at once"),
            ),
            values: self.values.map(U64::new),
        };
        [raw.as_bytes(), data].concat()
    }

    /// The answer's other messages.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &[u8]> {
        self.parts().1.chunks(DATA_BYTES_MAX)
    }

    /// The part of an answer in its first message, the number of its descriptors, and how many
    /// bytes follow.
    pub(crate) fn decode(
        bytes: &[u8],
        kind: Kind,
    ) -> std::result::Result<(Reply, usize, usize), String> {
        let (raw, data) = RawReply::read_from_prefix(bytes).map_err(|_| "a short answer")?;
        if raw.version.get() != VERSION || raw.kind.get() != kind as u16 {
            return Err("an answer of another version, or to another request".into());
        }
        if raw.data_bytes.get() as usize != data.len() {
            return Err("an answer that was cut".into());
        }
        let rest_bytes = raw.rest_bytes.get() as usize;
        if rest_bytes > kind.rest_bytes_max() {
            return Err("an answer that is too long".into());
        }
        let values = raw.values.map(U64::get);
        let reply = Reply { status: raw.status.get(), values, data: data.to_vec() };
        Ok((reply, usize::from(raw.file_count.get()), rest_bytes))
    }
}

/// The values of an answer's status.
mod status {
    pub(super) const IO: u16 = 1;
    pub(super) const ABORTED: u16 = 2;
    pub(super) const BUSY: u16 = 3;
    pub(super) const FULL: u16 = 4;
    pub(super) const DAMAGED: u16 = 5;
    pub(super) const INCOMPATIBLE: u16 = 6;
    pub(super) const USAGE: u16 = 7;
    pub(super) const NOT_FOUND: u16 = 8;
    pub(super) const DENIED: u16 = 9;
    pub(super) const DAEMON: u16 = 10;
    pub(super) const TOO_LARGE: u16 = 11;
    pub(super) const NO_ROOM: u16 = 12;
    pub(super) const TRUNCATED: u16 = 13;
    pub(super) const PAST_END: u16 = 14;
    pub(super) const DAMAGED_MEMORY: u16 = 15;
    pub(super) const IN_USE: u16 = 16;
    pub(super) const NO_MEMORY: u16 = 17;
}

/// The answer that carries an error.
pub(crate) fn refusal(error: &LogError) -> Reply {
    let (status, values, text) = match error {
        LogError::Io(_) | LogError::System { .. } => (status::IO, [0; 2], error.to_string()),
        LogError::Aborted(text) => (status::ABORTED, [0; 2], text.clone()),
        LogError::Busy(stream) => (status::BUSY, [0; 2], stream.clone()),
        LogError::Full { pool_bytes, waited_ms } => {
            (status::FULL, [*pool_bytes, *waited_ms], String::new())
        }
        LogError::Damaged { stream, at, what } => {
            (status::DAMAGED, [at.0, 0], format!("{stream}\n{what}"))
        }
        LogError::Incompatible(text) => (status::INCOMPATIBLE, [0; 2], text.clone()),
        LogError::Usage(text) => (status::USAGE, [0; 2], text.clone()),
        LogError::WrongProcess => (status::USAGE, [0; 2], error.to_string()),
        LogError::NotFound(text) => (status::NOT_FOUND, [0; 2], text.clone()),
        LogError::Denied(text) => (status::DENIED, [0; 2], text.clone()),
        LogError::Daemon(text) => (status::DAEMON, [0; 2], text.clone()),
        LogError::TooLarge { len_bytes, limit_bytes } => {
            (status::TOO_LARGE, [*len_bytes, *limit_bytes], String::new())
        }
        LogError::NoRoom(text) => (status::NO_ROOM, [0; 2], text.clone()),
        LogError::Truncated { stream, at, head } => {
            (status::TRUNCATED, [at.0, head.0], stream.clone())
        }
        LogError::PastEnd { stream, at, end } => (status::PAST_END, [at.0, end.0], stream.clone()),
        LogError::DamagedMemory { stream, what } => {
            (status::DAMAGED_MEMORY, [0; 2], format!("{stream}\n{what}"))
        }
        LogError::InUse(text) => (status::IN_USE, [0; 2], text.clone()),
        LogError::NoMemory(text) => (status::NO_MEMORY, [0; 2], text.clone()),
    };
    let mut data = text.into_bytes();
    data.truncate(DATA_BYTES_MAX);
    Reply { status, data, ..Reply::of(&values) }
}

/// The answer, or the error that it carries.
pub(crate) fn accepted(reply: Reply) -> Result<Reply> {
    let text = || String::from_utf8_lossy(&reply.data).into_owned();
    Err(match reply.status {
        0 => return Ok(reply),
        status::IO => LogError::system("the log daemon", std::io::Error::other(text())),
        status::ABORTED => LogError::Aborted(text()),
        status::BUSY => LogError::Busy(text()),
        status::FULL => LogError::Full { pool_bytes: reply.values[0], waited_ms: reply.values[1] },
        status::DAMAGED => {
            let (stream, what) = stream_and_what(&text());
            LogError::Damaged { stream, at: Lsn(reply.values[0]), what }
        }
        status::INCOMPATIBLE => LogError::Incompatible(text()),
        status::USAGE => LogError::Usage(text()),
        status::NOT_FOUND => LogError::NotFound(text()),
        status::DENIED => LogError::Denied(text()),
        status::TOO_LARGE => {
            LogError::TooLarge { len_bytes: reply.values[0], limit_bytes: reply.values[1] }
        }
        status::NO_ROOM => LogError::NoRoom(text()),
        status::TRUNCATED => {
            let (at, head) = (Lsn(reply.values[0]), Lsn(reply.values[1]));
            LogError::Truncated { stream: text(), at, head }
        }
        status::PAST_END => {
            let (at, end) = (Lsn(reply.values[0]), Lsn(reply.values[1]));
            LogError::PastEnd { stream: text(), at, end }
        }
        status::DAMAGED_MEMORY => {
            let (stream, what) = stream_and_what(&text());
            LogError::DamagedMemory { stream, what }
        }
        status::IN_USE => LogError::InUse(text()),
        status::NO_MEMORY => LogError::NoMemory(text()),
        _ => LogError::Daemon(text()),
    })
}

/// The name of a stream, and what was found, each on a line.
fn stream_and_what(text: &str) -> (String, String) {
    let (stream, what) = text.split_once('\n').unwrap_or((text, ""));
    (stream.to_owned(), what.to_owned())
}

/// As [`accepted`], for a request that an earlier daemon may have carried out before it died. If
/// the request removes a stream and there is none, that daemon removed it.
pub(crate) fn accepted_again(kind: Kind, reply: Reply) -> Result<Reply> {
    match (kind, accepted(reply)) {
        (Kind::Remove, Err(LogError::NotFound(_))) => Ok(Reply::default()),
        (_, answered) => answered,
    }
}

/// The header of each record of an answer.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    lsn: U64,
    usn: U64,
    payload_bytes: U32,
}

const RECORD_HEAD_BYTES: usize = 20;
const _: () = assert!(size_of::<RawRecord>() == RECORD_HEAD_BYTES);

/// Records as the data of an answer.
pub(crate) fn encode_records(records: &[Record]) -> Vec<u8> {
    let mut data = Vec::new();
    for record in records {
        let head = RawRecord {
            lsn: U64::new(record.lsn.0),
            usn: U64::new(record.usn.0),
            payload_bytes: U32::new(u32::try_from(record.payload.len()).expect("16 MiB at most")),
        };
        data.extend_from_slice(head.as_bytes());
        data.extend_from_slice(&record.payload);
    }
    data
}

/// The records of an answer.
pub(crate) fn parse_records(reply: &Reply) -> Result<Vec<Record>> {
    let mut data = &reply.data[..];
    let cut = || LogError::Daemon("it sent records that are cut".into());
    let mut records = Vec::new();
    while !data.is_empty() {
        let (head, rest) = RawRecord::read_from_prefix(data).map_err(|_| cut())?;
        let payload_bytes = head.payload_bytes.get() as usize;
        let (payload, rest) = rest.split_at_checked(payload_bytes).ok_or_else(cut)?;
        let (lsn, usn) = (Lsn(head.lsn.get()), Usn(head.usn.get()));
        records.push(Record { lsn, usn, payload: payload.to_vec() });
        data = rest;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use onejournal_testing::{test_name, tier};

    use super::*;

    #[test]
    fn golden_bytes() {
        let request = Request {
            stream: 0x0102_0304,
            token: 5,
            at: 6,
            count: 7,
            name: "ab".into(),
            ..Request::new(Kind::Allocate)
        };
        let mut golden = vec![1, 0, 4, 0, 4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0];
        golden.extend_from_slice(&[0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
        golden.resize(REQUEST_BYTES, 0);
        assert_eq!(request.encode().as_bytes(), golden);
        assert_eq!(Request::decode(&golden), Ok(request));
        let reply = Reply { data: b"xyz".to_vec(), ..Reply::of(&[9, 8]) };
        let mut golden = vec![1, 0, 6, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        golden.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0, 8]);
        golden.resize(REPLY_BYTES, 0);
        golden.extend_from_slice(b"xyz");
        assert_eq!(reply.encode(Kind::Sync, 2), golden);
        assert_eq!(Reply::decode(&golden, Kind::Sync), Ok((reply, 2, 0)));
        let long = Reply { data: vec![7; 2 * DATA_BYTES_MAX + 5], ..Reply::default() };
        let first = long.encode(Kind::Read, 0);
        assert_eq!(first.len(), REPLY_BYTES + DATA_BYTES_MAX);
        let (mut found, _, rest_bytes) = Reply::decode(&first, Kind::Read).expect("an answer");
        assert_eq!(rest_bytes, DATA_BYTES_MAX + 5);
        long.rest().for_each(|more| found.data.extend_from_slice(more));
        assert_eq!(found, long);
        for kind in Kind::ALL {
            let is_read = Reply::decode(&long.encode(kind, 0), kind).is_ok();
            assert_eq!(is_read, [Kind::Read, Kind::Salvage].contains(&kind), "{kind:?}");
        }
    }

    #[test]
    fn the_page_lists_every_request() {
        let page = include_str!("../../../../docs/format/log-protocol.md");
        for kind in Kind::ALL {
            let row = format!("| {} | {kind:?} |", kind as u16);
            assert!(page.contains(&row), "{row}");
        }
        let fields = [
            "| 28 | 4 | name_bytes |",
            "| 32 | 128 | name |",
            "| 12 | 4 | rest_bytes |",
            "| 16 | 112 | values |",
        ];
        assert!(fields.iter().all(|row| page.contains(row)));
        assert_eq!(std::mem::offset_of!(RawRequest, name), 32);
        assert_eq!(std::mem::offset_of!(RawRequest, name_bytes), 28);
        assert_eq!(std::mem::offset_of!(RawReply, values), 16);
    }

    #[test]
    fn bytes_that_are_no_request_are_refused() {
        let good = Request::new(Kind::Hello).encode();
        assert!(Request::decode(good.as_bytes()).is_ok());
        let change = |at: usize, byte: u8| {
            let mut bytes = good.as_bytes().to_vec();
            bytes[at] = byte;
            Request::decode(&bytes)
        };
        assert!(change(0, 2).is_err(), "version");
        assert!(change(2, 0).is_err() && change(2, 18).is_err(), "kind");
        assert!(change(28, 129).is_err(), "length of the name");
        assert!(change(28, 1).is_ok());
        assert!(Request::decode(&good.as_bytes()[1..]).is_err());
        assert!(Request::decode(&[]).is_err());
    }

    /// Some bytes become others, and the end may be missing.
    fn spoil(bytes: &mut Vec<u8>, rng: &mut Rng) {
        for _ in 0..rng.usize(1..5) {
            let (at, any) = (rng.usize(..bytes.len()), rng.u8(..));
            bytes[at] = [0, 1, 0x7f, 0xff, any][rng.usize(..5)];
        }
        if rng.u8(..4) == 0 {
            bytes.truncate(rng.usize(..bytes.len()));
        }
    }

    #[test]
    fn messages_with_any_bytes_are_read_or_refused() {
        let mut rng = Rng::with_seed(tier::seed_of(test_name!()));
        let record = |payload: &[u8]| Record { lsn: Lsn(7), usn: Usn(8), payload: payload.into() };
        let data = encode_records(&[record(b"abc"), record(b""), record(&[5; 100])]);
        for _ in 0..tier::count(200_000) {
            let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
            let request = Request { name: "db.wal".into(), ..Request::new(kind) };
            let mut bytes = request.encode().as_bytes().to_vec();
            spoil(&mut bytes, &mut rng);
            if let Ok(read) = Request::decode(&bytes) {
                // The same to the daemon as what a client would send.
                assert_eq!(Request::decode(read.encode().as_bytes()), Ok(read));
            }
            let reply = Reply { data: data.clone(), ..Reply::of(&[1, u64::MAX]) };
            let mut bytes = reply.encode(kind, rng.usize(..=FILES_MAX));
            spoil(&mut bytes, &mut rng);
            if let Ok((read, _, rest_bytes)) = Reply::decode(&bytes, kind) {
                assert!(rest_bytes <= ANSWER_BYTES_MAX && read.data.len() < bytes.len());
                let records = parse_records(&read).unwrap_or_default();
                let payload_bytes: usize = records.iter().map(|record| record.payload.len()).sum();
                assert!(payload_bytes <= read.data.len());
                let _ = accepted(read);
            }
        }
    }

    #[test]
    fn errors_arrive_as_they_were() {
        let damaged =
            LogError::Damaged { stream: "s".into(), at: Lsn(7), what: "no record".into() };
        let errors = [
            damaged,
            LogError::Full { pool_bytes: 5, waited_ms: 6 },
            LogError::Busy("s".into()),
            LogError::Denied("no".into()),
            LogError::NotFound("none".into()),
            LogError::Aborted("earlier".into()),
            LogError::Usage("what".into()),
            LogError::Incompatible("other".into()),
            LogError::TooLarge { len_bytes: 7, limit_bytes: 5 },
            LogError::NoRoom("full".into()),
            LogError::Truncated { stream: "s".into(), at: Lsn(7), head: Lsn(9) },
            LogError::PastEnd { stream: "s".into(), at: Lsn(9), end: Lsn(7) },
            LogError::DamagedMemory { stream: "s".into(), what: "no chunk".into() },
            LogError::InUse("by a daemon".into()),
            LogError::NoMemory("full".into()),
        ];
        for error in errors {
            let there = accepted(refusal(&error)).expect_err("an error");
            assert_eq!(format!("{there:?}"), format!("{error:?}"));
        }
    }
}
