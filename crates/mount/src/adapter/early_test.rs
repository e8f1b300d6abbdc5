//! A large write is answered before its data are home, and once.

use std::cell::RefCell;

use ext4::{DataMode, Owner};
use fuse::abi::{InHeader, OutHeader, WriteIn, WriteOut};
use fuse::{Answer, FileSystem, Reply, Request};
use zerocopy::IntoBytes;

use super::harness::{adapter, make};

/// What is sent early for a write of so many bytes, and how many bytes are left to send at the end.
fn sent_for_write(data_mode: DataMode, len_bytes: usize) -> (Vec<u8>, usize) {
    let adapter = adapter(data_mode);
    let file = make(adapter.volume.read().as_ref().unwrap(), b"file", Owner::default());
    let size = u32::try_from(len_bytes).unwrap();
    let body = [WriteIn { size, ..WriteIn::default() }.as_bytes(), &vec![7; len_bytes]].concat();
    let len = u32::try_from(40 + body.len()).unwrap();
    let nodeid = u64::from(file.0);
    let header = InHeader { len, opcode: 16, unique: 5, nodeid, ..InHeader::default() };
    let bytes = [header.as_bytes(), &body].concat();
    let sent = RefCell::new(Vec::new());
    let early = |header: &OutHeader, payload: &[u8]| {
        sent.borrow_mut().extend_from_slice(header.as_bytes());
        sent.borrow_mut().extend_from_slice(payload);
        true
    };
    let mut room = [0; 64];
    let mut reply = Reply::new(&mut room).with_early(&early);
    let answer = adapter.serve(&Request::parse(&bytes).unwrap(), &mut reply);
    assert_eq!(answer, Answer::Done);
    let sent_late = reply.header(5, answer).map_or(0, |header| header.len as usize);
    adapter.close().unwrap();
    (sent.take(), sent_late)
}

#[test]
fn a_large_write_in_place_is_answered_early_and_once() {
    let (sent, sent_late) = sent_for_write(DataMode::Ordered, 256 << 10);
    let out = WriteOut { size: 256 << 10, padding: 0 };
    assert_eq!((sent.len(), &sent[16..], sent_late), (24, out.as_bytes(), 0));
}

#[test]
fn other_writes_are_answered_at_their_end() {
    for (data_mode, len_bytes) in [(DataMode::Ordered, 4096), (DataMode::Journal, 256 << 10)] {
        let (sent, sent_late) = sent_for_write(data_mode, len_bytes);
        assert_eq!((sent.len(), sent_late), (0, 24), "{data_mode:?}, {len_bytes} bytes");
    }
}
