//! Crash images of short traces.

use super::*;
use onejournal_testing::drive::Recorder;
use onejournal_testing::drive::record::Data;

const NOTHING: Survival = Survival { percent: 0, by_sector: true, seed: 1 };
const EVERYTHING: Survival = Survival { percent: 100, ..NOTHING };

fn bytes(byte: u8, len_bytes: usize) -> Data {
    Data::Bytes(vec![byte; len_bytes].into())
}

fn trace(work: impl FnOnce(&Recorder)) -> Trace {
    let recorder = Recorder::default();
    work(&recorder);
    Trace {
        bases: vec![Image::zeroed(1 << 16); 2],
        events: recorder.take(),
        has_nvram: false,
        has_kernel_ext4: false,
    }
}

fn after(trace: &Trace, cut: usize, survival: Survival, fault: Fault) -> Vec<Image> {
    let mut cursor = Cursor::new(trace, fault);
    cursor.advance_to(cut);
    cursor.crash(survival)
}

fn sectors(image: &Image, count: usize) -> Vec<u8> {
    let all = image.to_bytes();
    all.chunks(512).take(count).map(|sector| sector[0]).collect()
}

#[test]
fn a_flush_covers_what_had_ended_when_it_began_once_it_has_ended() {
    let trace = trace(|disk| {
        let early = disk.write(0, 0, bytes(1, 512)); // 0
        disk.end(early); // 1
        let late = disk.write(0, 512, bytes(2, 512)); // 2
        let flush = disk.flush(0); // 3
        disk.end(late); // 4
        disk.end(flush); // 5
    });
    let left = |cut| sectors(&after(&trace, cut, NOTHING, Fault::Honest)[0], 2);
    assert_eq!([3, 5, 6].map(left), [[0, 0], [0, 0], [1, 0]]);
    let all = |cut| sectors(&after(&trace, cut, EVERYTHING, Fault::Honest)[0], 2);
    assert_eq!([0, 1, 3].map(all), [[0, 0], [1, 0], [1, 2]]);
}

#[test]
fn a_flush_is_of_one_disk_and_fua_of_one_write() {
    let trace = trace(|disk| {
        disk.end(disk.write(0, 0, bytes(1, 512)));
        disk.end(disk.write(1, 0, bytes(2, 512)));
        disk.end(disk.write_durable(0, 512, bytes(3, 512)));
        disk.end(disk.flush(1));
    });
    let images = after(&trace, trace.events.len(), NOTHING, Fault::Honest);
    assert_eq!(sectors(&images[0], 2), [0, 3]);
    assert_eq!(sectors(&images[1], 2), [2, 0]);
}

#[test]
fn later_sectors_survive_without_earlier_ones_and_writes_whole_if_asked() {
    let trace = trace(|disk| {
        disk.end(disk.write(0, 0, bytes(1, 4096)));
        disk.end(disk.write(0, 4096, bytes(2, 4096)));
    });
    let of = |by_sector, seed| {
        let survival = Survival { percent: 50, by_sector, seed };
        sectors(&after(&trace, 4, survival, Fault::Honest)[0], 16)
    };
    let found: Vec<_> = (0..64).map(|seed| of(true, seed)).collect();
    assert!(found.iter().any(|left| left[0] == 0 && left[15] == 2));
    assert!(found.iter().any(|left| left[..8].contains(&0) && left[..8].contains(&1)));
    assert_eq!(of(true, 5), of(true, 5));
    let whole: std::collections::BTreeSet<_> = (0..64).map(|seed| of(false, seed)).collect();
    assert_eq!(whole.len(), 4, "two writes, each there or not");
}

#[test]
fn zeros_are_written_too() {
    let mut trace = trace(|disk| {
        disk.end(disk.write(0, 512, Data::Zeros(40_960)));
        disk.end(disk.flush(0));
    });
    trace.bases[0] = Image::from_bytes(&[9; 1 << 16]);
    let image = &after(&trace, 4, NOTHING, Fault::Honest)[0];
    let found = image.to_bytes();
    assert!(found[512..41_472].iter().all(|byte| *byte == 0));
    assert!(found[..512].iter().chain(&found[41_472..]).all(|byte| *byte == 9));
}

#[test]
fn a_liar_loses_what_was_flushed_and_one_that_tears_a_part_of_it() {
    let trace = trace(|disk| {
        for place in 0..60 {
            disk.end(disk.write(0, place * 1024, bytes(1, 1024)));
            disk.end(disk.flush(0));
        }
    });
    let missing = |fault| {
        let image = after(&trace, trace.events.len(), NOTHING, fault).remove(0);
        sectors(&image, 120).into_iter().filter(|byte| *byte == 0).count()
    };
    assert_eq!(missing(Fault::Honest), 0);
    // A dropped flush is made good by the next one that is not.
    assert!(missing(Fault::TearsDurable) > 5);
    let mut lost = 0;
    for cut in (0..trace.events.len()).step_by(4) {
        let mut cursor = Cursor::new(&trace, Fault::DropsFlushes);
        cursor.advance_to(cut);
        lost += cursor.pending_count();
    }
    assert!((10..40).contains(&lost), "{lost} of 60 moments");
}

#[test]
fn text_of_a_survival_parses_to_the_same_survival() {
    for text in ["s50-7", "w3-99"] {
        assert_eq!(text.parse::<Survival>().unwrap().to_string(), text);
    }
    assert!("x50-7".parse::<Survival>().is_err() && "s50".parse::<Survival>().is_err());
}

/// A trace of stores. The second medium is NVRAM.
fn nvram_trace(work: impl FnOnce(&Recorder)) -> Trace {
    Trace { has_nvram: true, ..trace(work) }
}

fn store(memory: &Recorder, thread: u8, offset: u64, byte: u8, len_bytes: usize) {
    memory.end(memory.write(thread, offset, bytes(byte, len_bytes)));
}

fn fence(memory: &Recorder, thread: u8) {
    memory.end(memory.flush(thread));
}

/// The bytes in NVRAM that each of many crashes at the end leaves.
fn left_of(trace: &Trace, len_bytes: usize) -> std::collections::BTreeSet<Vec<u8>> {
    let of = |seed| {
        let survival = Survival { percent: 50, by_sector: true, seed };
        let images = after(trace, trace.events.len(), survival, Fault::Honest);
        images[1].to_bytes()[..len_bytes].to_vec()
    };
    (0..400).map(of).collect()
}

#[test]
fn a_fence_covers_the_stores_of_its_own_thread_in_the_same_memory() {
    let trace = nvram_trace(|memory| {
        store(memory, 1, 0, 1, 8);
        store(memory, 2, 8, 2, 8);
        fence(memory, 1);
    });
    let images = after(&trace, trace.events.len(), NOTHING, Fault::Honest);
    assert_eq!(images[1].to_bytes()[..16], [[1; 8], [0; 8]].concat());
    let images = after(&trace, trace.events.len(), EVERYTHING, Fault::Honest);
    assert_eq!(images[1].to_bytes()[..16], [[1; 8], [2; 8]].concat());
    assert!(images[0].to_bytes().iter().all(|byte| *byte == 0), "the disk is another medium");
}

#[test]
fn unfenced_words_survive_in_any_subset_and_a_part_of_a_word_byte_by_byte() {
    let trace = nvram_trace(|memory| store(memory, 1, 6, 1, 18));
    let found = left_of(&trace, 24);
    // Two bytes, and two words.
    assert_eq!(found.len(), 16);
    let is_whole = |word: &[u8]| word.iter().all(|byte| *byte == word[0]);
    assert!(found.iter().all(|left| is_whole(&left[8..16]) && is_whole(&left[16..])));
    assert!(found.iter().any(|left| left[6] != left[7]));
}

#[test]
fn bytes_replaced_by_a_fenced_store_do_not_come_back() {
    let trace = nvram_trace(|memory| {
        store(memory, 1, 0, 1, 24);
        store(memory, 2, 8, 2, 8);
        fence(memory, 2);
        store(memory, 3, 12, 3, 4);
    });
    let found = left_of(&trace, 24);
    assert!(found.iter().all(|left| left[8..12] == [2; 4]));
    assert!(found.iter().flat_map(|left| &left[12..16]).all(|byte| *byte != 1));
    for byte in [0, 1] {
        assert!(found.iter().any(|left| left[..8] == [byte; 8] && left[16..] == [1 - byte; 8]));
    }
    assert!(found.iter().any(|left| left[12..16] == [3; 4]));
    assert!(found.iter().any(|left| left[12..16] == [2; 4]));
}

#[test]
fn a_fence_makes_older_stores_durable_below_newer_ones_of_other_threads() {
    let trace = nvram_trace(|memory| {
        store(memory, 1, 0, 1, 8);
        store(memory, 2, 0, 2, 8);
        fence(memory, 1);
    });
    let found: Vec<_> = left_of(&trace, 8).into_iter().collect();
    assert_eq!(found, [[1; 8], [2; 8]]);
}

#[test]
fn memory_that_drops_fences_loses_stores_and_leaves_the_disk_alone() {
    let trace = nvram_trace(|media| {
        for place in 0..60 {
            store(media, 0, place * 512, 1, 512);
            fence(media, 0);
            store(media, 1, place * 8, 1, 8);
            fence(media, 1);
        }
    });
    // A fence that was dropped is made good by the next one: what is missing is looked for just
    // after each.
    let (mut on_disk, mut in_memory) = (0, 0);
    for round in 1..=60 {
        let images = after(&trace, round * 8, NOTHING, Fault::DropsFences);
        on_disk += usize::from(images[0].to_bytes()[(round - 1) * 512] == 0);
        in_memory += usize::from(images[1].to_bytes()[(round - 1) * 8] == 0);
    }
    assert_eq!(on_disk, 0);
    assert!((10..40).contains(&in_memory), "{in_memory} of 60 moments");
}
