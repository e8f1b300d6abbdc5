//! A bounded list of the disk's operations, in memory.

use std::fmt::Write;
use std::ops::Range;

/// The most operations that are kept (32 MiB). Later ones are only counted.
const KEPT_COUNT: usize = 1 << 20;

struct Entry {
    at_ns: u64,
    letter: char,
    span: Range<u64>,
}

/// A trace, on or off.
#[derive(Default)]
pub struct Trace {
    is_on: bool,
    entries: Vec<Entry>,
    dropped_count: u64,
}

impl Trace {
    /// Begins a new trace.
    pub fn start(&mut self) {
        *self = Trace { is_on: true, ..Trace::default() };
    }

    /// Ends the trace. Its operations stay readable.
    pub fn stop(&mut self) {
        self.is_on = false;
    }

    /// Adds an operation.
    pub fn add(&mut self, at_ns: u64, letter: char, span: &Range<u64>) {
        if !self.is_on {
            return;
        }
        if self.entries.len() < KEPT_COUNT {
            self.entries.push(Entry { at_ns, letter, span: span.clone() });
        } else {
            self.dropped_count += 1;
        }
    }

    /// One line for each operation.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Entry { at_ns, letter, span } in &self.entries {
            let (us, len_bytes) = (at_ns / 1000, span.end - span.start);
            writeln!(text, "{us} {letter} {} {len_bytes}", span.start).expect("memory");
        }
        if self.dropped_count > 0 {
            writeln!(text, "# {} more", self.dropped_count).expect("memory");
        }
        text
    }
}
