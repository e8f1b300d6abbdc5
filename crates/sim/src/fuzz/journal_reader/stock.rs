//! Records that the real engine wrote, from which journals are crafted.

use std::sync::{Arc, OnceLock};

use device::MemoryDevice;
use journal::codec::extent::Ranges;
use journal::format::RawCommit;
use journal::{
    BLOCK_BYTES, BlockBytes, DeltaCodec, Form, HomeBlock, Journal, Options, Space, scan,
};

/// The UUID of the volume.
pub const UUID: [u8; 16] = *b"a crafted volume";
/// Blocks of the volume.
pub const HOME_BLOCKS: usize = 32;
/// Size of a commit record in bytes.
pub(super) const COMMIT_BYTES: usize = size_of::<RawCommit>();

/// A little more than two regions of the smallest size that the engine takes.
const JOURNAL_BYTES: usize = 8192 + 2 * 140 * 4096;

/// Bytes of the records without their padding, in order.
pub(super) fn records() -> &'static [Vec<u8>] {
    static RECORDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let with = |delta_codec, pack| written(delta_codec, pack);
        [
            with(DeltaCodec::Runs, false),
            with(DeltaCodec::Runs, true),
            with(DeltaCodec::XorLzo, false),
            with(DeltaCodec::Copies, false),
            with(DeltaCodec::Copies, true),
        ]
        .concat()
    })
}

fn written(delta_codec: DeltaCodec, pack: bool) -> Vec<Vec<u8>> {
    let home = Arc::new(MemoryDevice::new(HOME_BLOCKS * BLOCK_BYTES, 512));
    let device = Arc::new(MemoryDevice::new(JOURNAL_BYTES, 512));
    let extents = std::iter::once(0..JOURNAL_BYTES as u64).collect();
    let space = Space::new(device, extents).expect("the extents are on the device");
    let options = Options {
        region_count: 2,
        commit_interval: None,
        background: false,
        incarnation: 1,
        delta_codec,
        pack,
        now_ns: || 5,
        ..Options::default()
    };
    let journal = Journal::open(home, space.clone(), UUID, options).expect("it opens");
    write(&journal);
    if delta_codec == DeltaCodec::Copies {
        write_shifted(&journal);
    }
    let found = scan(&space, &UUID).expect("what the engine wrote");
    let bytes = found.records.iter().map(|record| {
        let mut bytes = vec![0; record.record_bytes];
        space.read(record.offset, &mut bytes).expect("memory does not fail");
        bytes.truncate(record.payload_at + record.payload_bytes + COMMIT_BYTES);
        bytes
    });
    bytes.collect()
}

/// Transactions of every form, a revoke, and a block that is used again.
fn write(journal: &Journal) {
    let text: Vec<u8> = (0..BLOCK_BYTES).map(|i| b"a journal of journals "[i % 22]).collect();
    let text: BlockBytes = text.try_into().expect("one block");
    let mut ranges = Ranges::new();
    ranges.insert(100, 50);
    ranges.insert(3000, 7);
    let changed = |at: usize| {
        let mut bytes = text;
        bytes[at..at + 20].fill(b'!');
        bytes
    };
    put(journal, &[(3, text, Form::Block)]);
    put(journal, &[(3, changed(90), Form::Delta), (4, [0; BLOCK_BYTES], Form::Delta)]);
    put(journal, &[(3, changed(110), Form::Extent(ranges))]);
    let mut handle = journal.begin(0).expect("a handle");
    handle.forget(HomeBlock(3), 1);
    journal.sync(handle.stop()).expect("it commits");
    put(journal, &[(3, changed(7), Form::Delta), (5, text, Form::Delta)]);
    put(journal, &[(5, changed(2000), Form::Delta), (3, changed(9), Form::Delta)]);
}

/// A block that repeats nothing, the same at another offset, and a part of it.
fn write_shifted(journal: &Journal) {
    let mut random = fastrand::Rng::with_seed(1);
    let bytes: BlockBytes = std::array::from_fn(|_| random.u8(..));
    let mut shifted = [b'!'; BLOCK_BYTES];
    shifted[24..].copy_from_slice(&bytes[..BLOCK_BYTES - 24]);
    put(journal, &[(6, bytes, Form::Block)]);
    put(journal, &[(7, shifted, Form::Block)]);
    let mut changed = shifted;
    changed[1000..1100].copy_from_slice(&bytes[3000..3100]);
    changed[2000..2100].fill(b'?');
    put(journal, &[(7, changed, Form::Delta)]);
}

fn put(journal: &Journal, blocks: &[(u64, BlockBytes, Form)]) {
    let mut handle = journal.begin(blocks.len()).expect("a handle");
    for (block, bytes, form) in blocks {
        handle.put(HomeBlock(*block), Arc::new(*bytes), form.clone()).expect("it has credits");
    }
    journal.sync(handle.stop()).expect("it commits");
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::format::RawDescriptor;
    use std::collections::BTreeSet;

    #[test]
    fn every_form_a_revoke_and_a_packed_record_are_in_stock() {
        let (mut forms, mut revokes, mut packed) = (BTreeSet::new(), 0, 0);
        for bytes in records() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            revokes += word(32);
            packed += u32::from(word(44) > 0);
            forms.extend(
                (0..word(4) as usize).map(|tag| bytes[size_of::<RawDescriptor>() + 12 * tag + 10]),
            );
        }
        assert_eq!(forms.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        assert!(revokes > 0 && packed > 0);
        assert!(records().iter().all(|bytes| bytes.len() < 3 * BLOCK_BYTES));
    }
}
