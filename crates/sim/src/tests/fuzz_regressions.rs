//! Findings of the fuzzers, as short as possible.

use crate::fuzz::Target;

/// A crafted journal began with an XOR of a block to a version that was not in the journal. Replay
/// applied it to the home block, so a recovery that was cut and run again gave another result.
#[test]
fn regression_a_difference_without_its_base_is_refused() {
    for kind in 0..3 {
        for salt in 0..8 {
            // The second record of the codec xor-lzo, alone, and after a list of runs.
            let head = [0, salt, kind, 1, 5, 0];
            let runs = [31, 0, 1, 0, 0, 3, 4, 4, 101, 1, 7, 0];
            Target::JournalReader.run(&[&head[..], &[13, 0]].concat());
            Target::JournalReader.run(&[&head[..], &runs, &[13, 0]].concat());
        }
    }
}
