//! The deltas of `delta=xor-lzo` are LZO1X, as DJFS' are: another decoder reads them.

use journal::codec::xor_lzo;
use journal::{BLOCK_BYTES, BlockBytes};
use onejournal_testing::{noise_and_copies, test_name, tier};

/// Both decoders make the block of its encoding over zeros.
#[track_caller]
fn is_lzo1x(block: &BlockBytes) {
    let mut encoded = Vec::new();
    let zeros = [0; BLOCK_BYTES];
    assert!(xor_lzo::encode(&zeros, block, usize::MAX, &mut encoded).is_some());
    let (mut theirs, mut ours) = ([0xee; BLOCK_BYTES], zeros);
    assert_eq!(lzo::decompress_into(&encoded, &mut theirs), Ok(BLOCK_BYTES));
    assert_eq!(xor_lzo::apply(&mut ours, &encoded), Ok(()));
    assert!(theirs == *block && ours == *block, "decoded as it was");
}

#[test]
fn another_decoder_reads_all_instructions() {
    is_lzo1x(&[0; BLOCK_BYTES]);
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    for _ in 0..tier::count(3000) {
        let bytes = noise_and_copies(&mut random, BLOCK_BYTES);
        is_lzo1x(bytes.first_chunk().expect("a block"));
    }
}

#[test]
fn another_decoder_reads_matches_about_the_largest_distance_of_the_short_form() {
    for distance in 2040..2056 {
        for len in 4..12 {
            let mut block = [0; BLOCK_BYTES];
            for at in [1000, 1000 + distance] {
                block[at..at + len].copy_from_slice(&b"abcdefghijkl"[..len]);
            }
            block[1000 + len] = 1;
            block[1000 + distance + len] = 2;
            is_lzo1x(&block);
        }
    }
}
