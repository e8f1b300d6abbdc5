//! Recovery: what is history, what is torn, what is damaged, and being interrupted.

use crate::common;

use std::sync::Arc;

use common::{Rig, commit, copied_blocks, filled, forget, quiet};
use device::{BlockDevice, Operation};
use onejournal_journal::format::{
    DESCRIPTOR_MAGIC, FORMAT_VERSION, HEADER_MAGIC, RawDescriptor, RawHeader, record_seed,
};
use onejournal_journal::{
    BLOCK_BYTES, BlockBytes, DeltaCodec, End, Form, HomeBlock, JournalError, Options, Record,
    RecoverOptions, Recovery, Scan, Tid, scan,
};
use onejournal_testing::{Fault, SimDevice, Survival, test_name, tier};

/// A journal that crashed after so many commits: the n-th put n into block n.
fn crashed_after(commit_count: u64) -> Rig {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    (1..=commit_count).for_each(|n| _ = commit(&journal, n, n as u8));
    drop(journal);
    rig.crash(Survival::Nothing)
}

fn scanned(rig: &Rig) -> Scan {
    scan(&rig.space(), &common::UUID).unwrap()
}

fn write_count(rig: &Rig) -> u64 {
    rig.home.counters().write_count + rig.log.counters().write_count
}

fn log_bytes(rig: &Rig) -> Vec<u8> {
    rig.log_sim().image().to_bytes()
}

/// The rig with other bytes in its journal.
fn with_log(rig: &Rig, bytes: &[u8]) -> Rig {
    Rig::on(SimDevice::from_image(rig.home_sim().image(), 512), SimDevice::from_bytes(bytes, 512))
}

fn range_of(record: &Record) -> std::ops::Range<usize> {
    record.offset as usize..record.offset as usize + record.record_bytes
}

#[test]
fn recovery_reads_once_what_the_header_reaches() {
    let per_region = common::REGION_BYTES / 4608;
    let reaches = [
        (3, 256 << 10),
        (60, 512 << 10),
        (per_region, common::REGION_BYTES),
        (per_region + 3, common::REGION_BYTES + (256 << 10)),
        (2 * per_region, 2 * common::REGION_BYTES),
    ];
    for (commit_count, reach_bytes) in reaches {
        let rig = crashed_after(commit_count);
        let before = rig.log.counters().read_bytes;
        assert_eq!(rig.recover().unwrap().transaction_count as u64, commit_count);
        assert_eq!(rig.log.counters().read_bytes - before, 8192 + reach_bytes);
    }
}

#[test]
fn the_reach_costs_a_few_writes_a_region() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let before = rig.log.counters().write_count;
    let per_region = common::REGION_BYTES / 4608;
    (1..=2 * per_region).for_each(|n| _ = commit(&journal, n, 1));
    // The first region: two doublings; the second: the first reach into it, and two.
    assert_eq!(rig.log.counters().write_count - before, 2 * per_region + 5);
}

#[test]
fn nothing_one_and_many_transactions() {
    for count in [0, 1, 2, 30] {
        let rig = crashed_after(count);
        let found = rig.recover().unwrap();
        let expected = Recovery {
            transaction_count: count as usize,
            last_tid: (count > 0).then_some(Tid(count)),
            replayed_blocks: count as usize,
            revoked_blocks: 0,
            discarded_damaged: false,
        };
        assert_eq!(found, expected);
        (1..=count).for_each(|n| assert_eq!(rig.at_home(n), *filled(n as u8)));
        assert!(scanned(&rig).header.clean);
        assert_eq!(rig.recover().unwrap().transaction_count, 0, "once is enough");
    }
}

#[test]
fn after_every_commit_around_the_ring() {
    let rig = Rig::with_regions(3);
    let journal = rig.open(Options { region_count: 3, ..quiet() });
    let mut random = fastrand::Rng::with_seed(9);
    let mut model = [0; 32];
    for _ in 0..250 {
        let mut handle = journal.begin(32).unwrap();
        for _ in 0..random.usize(1..16) {
            let (block, byte) = (random.u64(0..32), random.u8(1..));
            handle.put(HomeBlock(block), filled(byte), Form::Block).unwrap();
            model[block as usize] = byte;
        }
        let tid = handle.stop();
        journal.sync(tid).unwrap();
        let after = rig.crash(Survival::Nothing);
        assert_eq!(scanned(&after).end, End::Tail);
        after.recover().unwrap();
        assert_eq!(after.first_bytes(std::array::from_fn::<u64, 32, _>(|n| n as u64)), model);
    }
    assert!(journal.stats().checkpoints > 6);
}

#[test]
fn a_last_record_without_any_one_of_its_sectors_or_its_end_is_torn() {
    let rig = crashed_after(3);
    let last = range_of(scanned(&rig).records.last().unwrap());
    let whole = log_bytes(&rig);
    for sector in 0..last.len() / 512 {
        let start = last.start + sector * 512;
        for lost in [start..start + 512, start..last.end] {
            let mut bytes = whole.clone();
            bytes[lost.clone()].fill(0);
            let torn = with_log(&rig, &bytes);
            assert_eq!(torn.recover().unwrap().last_tid, Some(Tid(2)), "without {lost:?}");
            assert_eq!(torn.first_bytes([1, 2, 3]), [1, 2, 0]);
        }
    }
}

#[test]
fn a_changed_bit_in_an_earlier_record_is_damage_and_nothing_is_written() {
    let rig = crashed_after(3);
    let second = range_of(&scanned(&rig).records[1]);
    for at in second.step_by(61).filter(|at| *at < 8192 + 4608 + 4184) {
        let damaged = crashed_after(3);
        damaged.log_sim().flip_bit(at as u64, 5);
        assert!(matches!(
            scanned(&damaged).end,
            End::Damaged { missing: Tid(2), found: Tid(3), .. }
        ));
        let refused = damaged.recover();
        assert!(
            matches!(&refused, Err(JournalError::Damaged(text)) if text.contains("transaction 2"))
        );
        assert_eq!(write_count(&damaged), 0);
    }
    let damaged = crashed_after(3);
    damaged.log_sim().flip_bit(second_payload(), 5);
    let options = RecoverOptions { discard_damaged: true, ..Default::default() };
    let found = damaged.recover_with(&options).unwrap();
    assert!(found.discarded_damaged);
    assert_eq!(found.last_tid, Some(Tid(1)));
    assert_eq!(damaged.first_bytes([1, 2, 3]), [1, 0, 0]);
    assert_eq!(damaged.recover().unwrap().transaction_count, 0);
}

fn second_payload() -> u64 {
    8192 + 4608 + 1000
}

#[test]
fn damage_to_the_first_record_of_a_region_is_noticed_too() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let per_region = common::REGION_BYTES / 4608;
    (0..per_region + 5).for_each(|n| _ = commit(&journal, n, 1));
    drop(journal);
    for region in 0..2 {
        let after = rig.crash(Survival::Nothing);
        after.log_sim().flip_bit(8192 + region * common::REGION_BYTES + 300, 0);
        assert!(matches!(after.recover(), Err(JournalError::Damaged(_))), "region {region}");
    }
}

#[test]
fn damage_to_any_record_but_the_last_is_noticed() {
    let per_region = common::REGION_BYTES / 4608;
    let rig = crashed_after(per_region + 70);
    let records = scanned(&rig).records;
    for record in &records[..records.len() - 1] {
        let damaged = rig.crash(Survival::Nothing);
        damaged.log_sim().flip_bit(record.offset + 300, 3);
        let end = scanned(&damaged).end;
        assert!(matches!(end, End::Damaged { missing, .. } if missing == record.tid), "{end:?}");
    }
}

#[test]
fn damage_over_all_but_the_last_record_is_noticed() {
    let per_region = common::REGION_BYTES / 4608;
    for commit_count in [3, 60, per_region + 1, per_region + 70] {
        let rig = crashed_after(commit_count);
        let records = scanned(&rig).records;
        let last = records.last().unwrap();
        let mut bytes = log_bytes(&rig);
        // What is after the last record in the ring goes too.
        for (start, end) in [(8192, last.offset), (last.offset + 4608, bytes.len() as u64)] {
            bytes[start as usize..end as usize].fill(0);
        }
        let end = scanned(&with_log(&rig, &bytes)).end;
        let (missing, found) = (Tid(1), last.tid);
        assert_eq!(end, End::Damaged { missing, found, found_offset: last.offset });
    }
}

/// The other slot may say less than was reached.
#[test]
fn without_one_of_the_headers_everything_counts_as_reached() {
    let rig = crashed_after(60);
    let records = scanned(&rig).records;
    let whole = log_bytes(&rig);
    for slot in [0, 4096] {
        let mut bytes = whole.clone();
        bytes[slot..slot + 512].fill(0);
        let torn = with_log(&rig, &bytes);
        assert_eq!(scanned(&torn).records, records);
        assert_eq!(torn.recover().unwrap().last_tid, Some(Tid(60)));
        bytes[records[1].offset as usize + 300] ^= 1;
        bytes[8192 + 10_000..records[59].offset as usize].fill(0);
        let damaged = with_log(&rig, &bytes);
        assert!(matches!(damaged.recover(), Err(JournalError::Damaged(_))), "slot {slot}");
    }
}

#[test]
fn a_whole_record_of_an_unknown_form_is_refused() {
    let rig = crashed_after(2);
    let second = scanned(&rig).records[1].clone();
    let start = second.offset as usize;
    let mut bytes = log_bytes(&rig);
    let tags = start + size_of::<RawDescriptor>();
    bytes[tags + 10] = 77;
    let body = start..tags + 12 + 4096;
    let seed = record_seed(&common::UUID, scanned(&rig).header.incarnation);
    let checksum = crc32c::crc32c_append(seed, &bytes[body.clone()]);
    bytes[body.end + 4..body.end + 8].copy_from_slice(&checksum.to_le_bytes());
    let unknown = with_log(&rig, &bytes);
    for discard_damaged in [false, true] {
        let options = RecoverOptions { discard_damaged, ..Default::default() };
        let refused = unknown.recover_with(&options);
        assert!(matches!(&refused, Err(JournalError::Incompatible(text)) if text.contains("77")));
    }
    assert_eq!(write_count(&unknown), 0);
}

#[test]
fn a_torn_header_leaves_the_other_and_without_any_there_is_no_journal() {
    let rig = crashed_after(2);
    for slot in [0, 4096] {
        let mut bytes = log_bytes(&rig);
        bytes[slot..slot + 512].fill(0xa5);
        let torn = with_log(&rig, &bytes);
        torn.recover().unwrap();
        assert_eq!(torn.first_bytes([1, 2]), [1, 2]);
    }
    let mut bytes = log_bytes(&rig);
    bytes[..8192].fill(0);
    let none = with_log(&rig, &bytes);
    assert!(matches!(none.recover(), Err(JournalError::NoHeader)));
    assert_eq!(write_count(&none), 0);
}

#[test]
fn another_volumes_journal_is_refused() {
    let rig = crashed_after(2);
    let home: std::sync::Arc<dyn BlockDevice> = rig.home.clone();
    let found =
        onejournal_journal::recover(&home, &rig.space(), &[9; 16], &RecoverOptions::default());
    assert!(matches!(found, Err(JournalError::OtherVolume)));
    assert_eq!(write_count(&rig), 0);
}

/// The other slot used to be taken instead.
#[test]
fn regression_a_header_of_a_later_version_in_one_slot_is_refused() {
    let rig = crashed_after(2);
    for slot in [0, 4096] {
        let mut bytes = log_bytes(&rig);
        assert_eq!(bytes[slot..slot + 4], HEADER_MAGIC.to_le_bytes());
        bytes[slot + 4] = u8::try_from(FORMAT_VERSION).unwrap() + 1;
        bytes[slot + 8..slot + 12].fill(0);
        let checksum = crc32c::crc32c(&bytes[slot..slot + size_of::<RawHeader>()]);
        bytes[slot + 8..slot + 12].copy_from_slice(&checksum.to_le_bytes());
        let newer = with_log(&rig, &bytes);
        assert!(matches!(newer.recover(), Err(JournalError::Incompatible(_))), "slot {slot}");
        assert_eq!(write_count(&newer), 0);
    }
}

#[test]
fn a_block_after_the_end_of_the_volume_is_damage() {
    let rig = crashed_after(3);
    let short = SimDevice::new(3 * 4096, 512);
    let rig = Rig::on(short, SimDevice::from_image(rig.log_sim().image(), 512));
    assert!(matches!(rig.recover(), Err(JournalError::Damaged(_))));
    assert_eq!(write_count(&rig), 0);
}

/// Incompressible.
fn noise(seed: u64) -> BlockBytes {
    let mut random = fastrand::Rng::with_seed(seed);
    std::array::from_fn(|_| random.u8(..))
}

/// The block at another offset, as in a rollback journal or a WAL.
fn shifted(block: &BlockBytes) -> BlockBytes {
    let mut out = [b'!'; BLOCK_BYTES];
    out[24..].copy_from_slice(&block[..BLOCK_BYTES - 24]);
    out
}

/// A journal that crashed after it had logged a block whole, and then the same bytes elsewhere. If
/// `fill_region`, the second record begins another region.
fn crashed_with_a_copy(pack: bool, fill_region: bool) -> Rig {
    let rig = Rig::new();
    let options = Options { pack, delta_codec: DeltaCodec::Copies, ..quiet() };
    let journal = rig.open(options);
    let mut fill = 0u8;
    let mut log = |block: u64, bytes: BlockBytes| {
        let mut handle = journal.begin(2).unwrap();
        handle.put(HomeBlock(block), Arc::new(bytes), Form::Block).unwrap();
        // If payloads are packed, this makes it worth it.
        fill = fill.wrapping_add(1);
        handle.put(HomeBlock(block + 1), filled(fill), Form::Block).unwrap();
        journal.sync(handle.stop()).unwrap();
    };
    log(1, noise(1));
    if fill_region {
        let second_region = onejournal_journal::format::REGIONS_OFFSET + common::REGION_BYTES;
        let newest_offset = || scanned(&rig).records.last().unwrap().offset;
        let mut other_noises = (2..).map(noise);
        while newest_offset() < second_region {
            log(1, other_noises.next().unwrap());
        }
        log(1, noise(1));
        assert_eq!(copied_blocks(&journal), 0);
    }
    log(5, shifted(&noise(1)));
    assert_eq!(copied_blocks(&journal), 1);
    drop(journal);
    rig.crash(Survival::Nothing)
}

#[test]
fn a_copy_is_made_of_an_earlier_record_of_its_region() {
    for (pack, fill_region) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = crashed_with_a_copy(pack, fill_region);
        let records = scanned(&rig).records;
        assert!(records.iter().all(|record| record.unpacked_bytes.is_some() == pack));
        rig.recover().unwrap();
        let mut found = [0; BLOCK_BYTES];
        rig.home.read(5 * 4096, &mut found).unwrap();
        assert!(found == shifted(&noise(1)), "packed {pack}, after a full region {fill_region}");
    }
}

#[test]
fn a_copy_of_other_bytes_is_damage_and_nothing_is_written() {
    let rig = crashed_with_a_copy(false, false);
    let scan = scanned(&rig);
    let record = &scan.records[1];
    let start = record.offset as usize;
    let distance = start + record.payload_at + record.tags[0].stored_bytes - 2;
    let commit_at = start + record.payload_at + record.payload_bytes;
    let seed = record_seed(&common::UUID, scan.header.incarnation);
    // Another block; none; bytes further on.
    for (at, byte) in [(distance, 1), (distance, 3), (distance + 1, 1), (distance + 1, 24)] {
        let mut bytes = log_bytes(&rig);
        assert_ne!(bytes[at], byte);
        bytes[at] = byte;
        let checksum = crc32c::crc32c_append(seed, &bytes[start..commit_at]);
        bytes[commit_at + 4..commit_at + 8].copy_from_slice(&checksum.to_le_bytes());
        let other = with_log(&rig, &bytes);
        assert_eq!(scanned(&other).records.len(), 2);
        assert!(matches!(other.recover(), Err(JournalError::Damaged(_))), "byte {at} {byte}");
        assert_eq!(write_count(&other), 0);
    }
}

#[test]
fn a_dry_run_says_the_same_and_writes_nothing() {
    let rig = crashed_after(5);
    let options = RecoverOptions { dry_run: true, ..Default::default() };
    let dry = rig.recover_with(&options).unwrap();
    assert_eq!(write_count(&rig), 0);
    assert_eq!(rig.home.counters().flush_count, 0);
    assert_eq!(rig.recover().unwrap(), dry);
}

#[test]
fn records_of_an_earlier_incarnation_are_never_replayed() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    (1..=10).for_each(|n| _ = commit(&journal, n, 1));
    drop(journal);
    // Opened without recovery the history is given up, and the next incarnation counts from the
    // same number: its first record is followed on the medium by the second one of the incarnation
    // before.
    let journal = rig.open(Options { incarnation: 7002, ..quiet() });
    assert_eq!(commit(&journal, 500, 9), Tid(1));
    drop(journal);
    let magic = DESCRIPTOR_MAGIC.to_le_bytes();
    assert_eq!(log_bytes(&rig)[8192 + 4608..8192 + 4612], magic, "it is there");
    let after = rig.crash(Survival::Nothing);
    assert_eq!(after.recover().unwrap().transaction_count, 1);
    assert_eq!(after.first_bytes([1, 2, 10, 500]), [0, 0, 0, 9]);
}

/// What recovery leaves at home and says, for comparison.
fn outcome(rig: &Rig) -> (Vec<u8>, Option<Tid>) {
    rig.recover().unwrap();
    (rig.home_sim().image().to_bytes(), Some(scanned(rig).header.tail_tid))
}

#[test]
fn interrupted_anywhere_and_run_again_gives_the_same() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    for n in 0..40 {
        commit(&journal, n * 3 % 50, n as u8 + 1);
    }
    let tid = forget(&journal, 6);
    journal.sync(tid).unwrap();
    drop(journal);
    let whole = outcome(&rig.crash(Survival::Nothing));
    let mut interruptions = 0;
    let seeds = tier::seeds(test_name!(), 8);
    for operation in [Operation::Write, Operation::Flush] {
        for on_home in [true, false] {
            for skip_count in 0.. {
                let first = rig.crash(Survival::Nothing);
                let sim = if on_home { first.home_sim() } else { first.log_sim() };
                sim.set_seed(skip_count);
                sim.inject(Fault { operation, skip_count, forever: true });
                if first.recover().is_ok() {
                    break;
                }
                interruptions += 1;
                for seed in seeds.clone() {
                    let again = first.crash(Survival::Random(seed));
                    assert_eq!(outcome(&again).0, whole.0, "{operation} {skip_count} {seed}");
                    assert_eq!(scanned(&again).header.tail_tid, whole.1.unwrap());
                }
            }
        }
    }
    assert!(interruptions > 5, "{interruptions}");
}

#[test]
fn changed_bytes_anywhere_in_the_journal_never_panic() {
    let rig = crashed_after(4);
    let whole = log_bytes(&rig);
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    for _ in 0..tier::count(300) {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..8192 + 4 * 4608);
            bytes[at] = random.u8(..);
        }
        let _ = with_log(&rig, &bytes).recover();
    }
}
