//! Records of the requests to disks, with their data, in one order.
//!
//! A write or flush *begins* when the request arrives, and *ends* just before its answer is sent.
//! Both are events, so a reader can tell which writes a flush covers: the writes that had ended
//! when it began. Programs that use the disks can add marks. A mark that is set after an answer was
//! received follows the end of that request.

use std::sync::Arc;

use device::sync::Mutex;

/// The data of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// This many zeros: a discard, or a range that is zeroed.
    Zeros(u64),
}

impl Data {
    /// Number of bytes.
    pub fn len_bytes(&self) -> u64 {
        match self {
            Data::Bytes(bytes) => bytes.len() as u64,
            Data::Zeros(len_bytes) => *len_bytes,
        }
    }

    /// All of its bytes.
    pub fn bytes(&self) -> Arc<[u8]> {
        match self {
            Data::Bytes(bytes) => bytes.clone(),
            Data::Zeros(len_bytes) => {
                let len_bytes = usize::try_from(*len_bytes).expect("a write fits into memory");
                vec![0; len_bytes].into()
            }
        }
    }
}

/// One event. The number of a request is unique in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write arrived.
    Write {
        /// Number of the request.
        request: u64,
        /// The number of the disk, as given when it was attached to the recorder.
        disk: u8,
        /// Where it begins, in bytes.
        offset: u64,
        /// What it writes.
        data: Data,
        /// Whether it is durable when it ends, independent of earlier writes (FUA).
        is_durable: bool,
    },
    /// A flush arrived.
    Flush {
        /// Number of the request.
        request: u64,
        /// The disk.
        disk: u8,
    },
    /// The request with this number is about to be answered.
    End(u64),
    /// A mark of a user.
    Mark(u64),
}

/// Takes the events of one or several disks. A clone adds to the same record.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    shared: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    /// Adds a mark. Returns its place in the record.
    pub fn mark(&self, mark: u64) -> usize {
        self.push(|_| Event::Mark(mark))
    }

    /// Number of events so far.
    pub fn len(&self) -> usize {
        self.shared.lock().len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the events from this place on.
    pub fn events_from(&self, place: usize) -> Vec<Event> {
        self.shared.lock()[place..].to_vec()
    }

    /// Takes all events out.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.lock())
    }

    /// A write arrived. Returns the number of the request, for [`Recorder::end`].
    pub fn write(&self, disk: u8, offset: u64, data: Data) -> u64 {
        let is_durable = false;
        self.push(|request| Event::Write { request, disk, offset, data, is_durable }) as u64
    }

    /// A write with FUA arrived.
    pub fn write_durable(&self, disk: u8, offset: u64, data: Data) -> u64 {
        let is_durable = true;
        self.push(|request| Event::Write { request, disk, offset, data, is_durable }) as u64
    }

    /// A flush arrived.
    pub fn flush(&self, disk: u8) -> u64 {
        self.push(|request| Event::Flush { request, disk }) as u64
    }

    /// Records that the answer to this request comes next.
    pub fn end(&self, request: u64) {
        self.push(|_| Event::End(request));
    }

    /// Requests are numbered by their place.
    fn push(&self, event: impl FnOnce(u64) -> Event) -> usize {
        let mut events = self.shared.lock();
        let place = events.len();
        events.push(event(place as u64));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_two_disks_and_marks_are_in_one_order() {
        let recorder = Recorder::default();
        let other = recorder.clone();
        let write = recorder.write(0, 512, Data::Bytes([1; 512].into()));
        let flush = other.flush(1);
        recorder.end(write);
        assert_eq!(other.mark(7), 3);
        other.end(flush);
        let data = Data::Bytes([1; 512].into());
        let expected = [
            Event::Write { request: 0, disk: 0, offset: 512, data, is_durable: false },
            Event::Flush { request: 1, disk: 1 },
            Event::End(0),
            Event::Mark(7),
            Event::End(1),
        ];
        assert_eq!(recorder.take(), expected);
        assert!(other.is_empty());
    }
}
