//! A stream of the log, with the stamp of the database's open file.

use std::ops::Deref;

use log::{LogError, Lsn};

use crate::faults::{self, Fault};
use crate::stream::header::StreamHeader;
use crate::stream::stamp::Stamp;

/// A stream of a database's log. Each write of its header puts its stamp there.
#[derive(Clone)]
pub struct Stream {
    stream: log::Stream,
    stamp: Stamp,
    /// Whether another user may have written its records.
    is_others: bool,
}

impl Stream {
    /// A stream of a database.
    pub fn new(stream: log::Stream, stamp: Stamp) -> Stream {
        Stream { stream, stamp, is_others: false }
    }

    /// The same for the database of another user, if `is_others`.
    pub fn of_user(self, is_others: bool) -> Stream {
        Stream { is_others, ..self }
    }

    /// Whether another user may have written its records.
    pub fn is_others(&self) -> bool {
        self.is_others
    }

    /// Appends a record.
    pub fn append(&self, record: &[u8]) -> log::Result<Lsn> {
        let fails = [Fault::LogTakesNothing, Fault::RestartsWithoutLog].into_iter().any(faults::is);
        match fails {
            true => Err(LogError::Aborted("a fault".into())),
            false => self.stream.append(record),
        }
    }

    /// Makes the record at `lsn` and all before it durable.
    pub fn sync(&self, lsn: Lsn) -> log::Result<()> {
        let fails = [Fault::LogTakesNothing, Fault::LogSyncsNothing].into_iter().any(faults::is);
        match fails {
            true => Err(LogError::Aborted("a fault".into())),
            false => self.stream.sync(lsn),
        }
    }

    /// Writes the header.
    pub fn leave(&self, header: StreamHeader) {
        self.stream.set_header(&header.to_bytes(self.stamp));
    }
}

impl Deref for Stream {
    type Target = log::Stream;

    fn deref(&self) -> &log::Stream {
        &self.stream
    }
}
