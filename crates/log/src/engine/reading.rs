//! Reads the durable records of a stream, many at a time.

use crate::engine::lane::{Anywhere, Lane};
use crate::format::scan::Records;
use crate::types::RecordBatch;
use crate::{LogError, Lsn, Record, Result};

impl Lane {
    /// An error unless `at` is between the first record that was not truncated away and the end.
    pub(crate) fn check_position(&self, at: Lsn) -> Result<()> {
        let head = Lsn(self.words.head());
        let end = Lsn(self.durable());
        self.words.check()?;
        if at < head {
            return Err(self.truncated(at, head));
        }
        // What was truncated away need not have been durable.
        if at > end.max(head) {
            return Err(LogError::PastEnd { stream: self.name.to_string(), at, end });
        }
        Ok(())
    }

    /// Reads durable records from the one at `at` on, about `limit_bytes` of them, and none at the
    /// end. An error if no record begins at `at`, or if it was truncated away in the meantime.
    pub(crate) fn read_records(&self, at: Lsn, limit_bytes: usize) -> Result<RecordBatch> {
        let end = self.durable();
        let mut source = Anywhere(self);
        let mut records = Records::new(self.identity(), &mut source, at, end.max(at.0));
        let (mut found, mut bytes, mut failure) = (Vec::new(), 0, None);
        while records.position().0 < end && (bytes < limit_bytes || found.is_empty()) {
            match records.next() {
                Ok(Some((lsn, header, payload))) => {
                    bytes += header.record_bytes();
                    found.push(Record { lsn, usn: header.usn, payload: payload.to_vec() });
                }
                Ok(None) => break,
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            }
        }
        // If the words are lost, `end` is not the end of the stream.
        self.words.check()?;
        if found.is_empty() && at.0 < end {
            return Err(self.no_record(at, failure));
        }
        Ok(RecordBatch { records: found, next: records.position() })
    }

    /// Why no record could be read at `at`.
    fn no_record(&self, at: Lsn, failure: Option<LogError>) -> LogError {
        let head = Lsn(self.words.head());
        if at < head {
            return self.truncated(at, head);
        }
        failure.unwrap_or_else(|| {
            let (stream, what) = (self.name.to_string(), "no record begins there".into());
            LogError::Damaged { stream, at, what }
        })
    }

    fn truncated(&self, at: Lsn, head: Lsn) -> LogError {
        LogError::Truncated { stream: self.name.to_string(), at, head }
    }
}
