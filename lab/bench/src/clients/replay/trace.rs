//! The text of a trace.
//!
//! ```text
//! # where it comes from
//! w GAP_US OFFSET BYTES KEPT ZEROS
//! s GAP_US
//! ```
//!
//! Each line is one call, in the order in which the server began them, `GAP_US` microseconds after
//! the previous one. `w` is a write. The file already holds the first `KEPT` of its `BYTES` (a
//! log's last block is written again and again while it fills). The last `ZEROS` are zeros, where
//! there is no record yet. The bytes between them are new. `s` is an fdatasync. Replay writes
//! random bytes for the new ones. So a replay changes the same bytes as the server did, but they
//! cannot be compressed as a real log can.

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// The calls of a server on its log.
#[derive(Debug, PartialEq)]
pub struct Trace {
    source: String,
    pub calls: Vec<Call>,
}

/// One call, and the pause before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    pub gap: Duration,
    pub what: What,
}

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    Write { offset: u64, len_bytes: usize, kept_bytes: usize, zero_bytes: usize },
    Sync,
}

/// Counts of a trace.
#[derive(Debug, PartialEq, Serialize)]
pub struct Facts {
    pub source: String,
    pub seconds: f64,
    pub writes: u64,
    pub syncs: u64,
    pub written_bytes: u64,
    pub new_bytes: u64,
    pub log_bytes: u64,
}

/// Why a text is not a trace.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    #[error("line {line}: `{text}` is not: {format}", format = Trace::FORMAT)]
    Line { line: usize, text: String },
    #[error("it has no syncs")]
    NoSync,
}

impl Trace {
    /// The lines of a trace.
    pub const FORMAT: &str = "w GAP_US OFFSET BYTES KEPT ZEROS | s GAP_US | # COMMENT";

    /// Where the log ends.
    pub fn log_bytes(&self) -> u64 {
        let end = |call: &Call| match call.what {
            What::Write { offset, len_bytes, .. } => offset + len_bytes as u64,
            What::Sync => 0,
        };
        self.calls.iter().map(end).max().unwrap_or(0)
    }

    /// The largest write.
    pub fn write_bytes_max(&self) -> usize {
        let len = |call: &Call| match call.what {
            What::Write { len_bytes, .. } => len_bytes,
            What::Sync => 0,
        };
        self.calls.iter().map(len).max().unwrap_or(0)
    }

    /// The counts of its calls.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts {
            source: self.source.clone(),
            seconds: self.calls.iter().map(|call| call.gap.as_secs_f64()).sum(),
            writes: 0,
            syncs: 0,
            written_bytes: 0,
            new_bytes: 0,
            log_bytes: self.log_bytes(),
        };
        for call in &self.calls {
            match call.what {
                What::Sync => facts.syncs += 1,
                What::Write { len_bytes, kept_bytes, zero_bytes, .. } => {
                    facts.writes += 1;
                    facts.written_bytes += len_bytes as u64;
                    facts.new_bytes += (len_bytes - kept_bytes - zero_bytes) as u64;
                }
            }
        }
        facts
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Trace, TraceError> {
        let (mut source, mut calls) = (String::new(), Vec::new());
        for (line, text) in (1..).zip(text.lines()) {
            if let Some(comment) = text.strip_prefix("# ") {
                source = if source.is_empty() { comment.to_owned() } else { source };
                continue;
            }
            let call =
                call(text).ok_or_else(|| TraceError::Line { line, text: text.to_owned() })?;
            calls.push(call);
        }
        let has_sync = calls.iter().any(|call| call.what == What::Sync);
        has_sync.then_some(Trace { source, calls }).ok_or(TraceError::NoSync)
    }
}

fn call(text: &str) -> Option<Call> {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |index: usize| words.get(index)?.parse::<u32>().ok();
    let what = match words[..] {
        ["s", _] => What::Sync,
        ["w", _, _, _, _, _] => {
            let at = |index| number(index).map(|value| value as usize);
            let (len_bytes, kept_bytes, zero_bytes) = (at(3)?, at(4)?, at(5)?);
            if len_bytes == 0 || kept_bytes + zero_bytes > len_bytes {
                return None;
            }
            What::Write { offset: u64::from(number(2)?), len_bytes, kept_bytes, zero_bytes }
        }
        _ => return None,
    };
    Some(Call { gap: Duration::from_micros(u64::from(number(1)?)), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_and_counted() {
        let text = "# a server\n# more\nw 0 512 4096 100 3900\ns 250\nw 1000000 4608 10 0 0\ns 1\n";
        let trace: Trace = text.parse().unwrap();
        assert_eq!(trace.calls[1], Call { gap: Duration::from_micros(250), what: What::Sync });
        let expected = Facts {
            source: "a server".into(),
            seconds: 1.000251,
            writes: 2,
            syncs: 2,
            written_bytes: 4106,
            new_bytes: 106,
            log_bytes: 4618,
        };
        assert_eq!(trace.facts(), expected);
        assert_eq!(trace.write_bytes_max(), 4096);
    }

    #[test]
    fn a_line_that_is_no_call_is_refused_with_its_number() {
        for wrong in ["", "x 1", "s", "s -1", "w 0 0 10 6 5", "w 0 0 0 0 0", "w 0 0 10 0", "s 1 2"]
        {
            let text = format!("s 1\n{wrong}\n");
            let expected = TraceError::Line { line: 2, text: wrong.into() };
            assert_eq!(text.parse::<Trace>(), Err(expected));
        }
        assert_eq!("w 0 0 10 5 5\n".parse::<Trace>(), Err(TraceError::NoSync));
    }
}
