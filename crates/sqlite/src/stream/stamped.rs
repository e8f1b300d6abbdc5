//! A stream of the log, with the stamp of the database's open file.

use std::ops::Deref;

use crate::stream::header::StreamHeader;
use crate::stream::stamp::Stamp;

/// A stream of a database's log. Each write of its header puts its stamp there.
#[derive(Clone)]
pub struct Stream {
    stream: log::Stream,
    stamp: Stamp,
}

impl Stream {
    /// A stream of a database.
    pub fn new(stream: log::Stream, stamp: Stamp) -> Stream {
        Stream { stream, stamp }
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
