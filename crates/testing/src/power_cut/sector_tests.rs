//! Tests of the cache before a block device.

use super::cache::Cache;
use super::event::Event;
use super::image::Image;
use super::survival::Survival;
use super::unit::Unit;

const SECTOR: usize = 512;

fn write(offset: u64, byte: u8, sector_count: usize) -> Event {
    Event::Write { offset, data: vec![byte; sector_count * SECTOR].into(), thread: 0 }
}

fn durable(offset: u64, byte: u8, sector_count: usize) -> Event {
    Event::DurableWrite { offset, data: vec![byte; sector_count * SECTOR].into() }
}

fn cache_after(events: &[Event]) -> Cache {
    let mut cache = Cache::new(Image::zeroed(8 * SECTOR as u64), Unit::Sector);
    events.iter().for_each(|event| cache.apply(event));
    cache
}

/// The byte each sector is filled with; panics on a sector of more than one.
fn sectors(image: &Image) -> Vec<u8> {
    let bytes = image.to_bytes();
    let uniform = |sector: &[u8]| sector.iter().all(|&byte| byte == sector[0]);
    assert!(bytes.chunks(SECTOR).all(uniform), "torn inside of a sector");
    bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
}

#[test]
fn an_unflushed_write_survives_whole_torn_or_not_at_all() {
    let cache = cache_after(&[write(512, 1, 3)]);
    let mut found: Vec<_> =
        (0..500).map(|seed| sectors(&cache.crash(Survival::Random(seed), None))).collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 8, "every subset of three sectors");
}

#[test]
fn a_flushed_write_is_never_lost() {
    let cache = cache_after(&[write(0, 1, 2), Event::Flush { thread: 0 }, write(512, 2, 1)]);
    for seed in 0..200 {
        let found = sectors(&cache.crash(Survival::Random(seed), None));
        assert!(found[0] == 1 && (found[1] == 1 || found[1] == 2), "seed {seed}: {found:?}");
    }
}

#[test]
fn two_unflushed_writes_to_a_sector_leave_either_or_none() {
    let cache = cache_after(&[write(0, 1, 1), write(0, 2, 1)]);
    let mut found: Vec<_> =
        (0..100).map(|seed| sectors(&cache.crash(Survival::Random(seed), None))[0]).collect();
    found.sort();
    found.dedup();
    assert_eq!(found, [0, 1, 2]);
}

#[test]
fn a_durable_write_keeps_its_own_sectors_and_nothing_else() {
    let cache = cache_after(&[write(0, 1, 4), durable(512, 2, 2)]);
    assert_eq!(sectors(&cache.crash(Survival::Nothing, None)), [0, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!(sectors(&cache.crash(Survival::Everything, None)), [1, 2, 2, 1, 0, 0, 0, 0]);
    for seed in 0..200 {
        assert_eq!(sectors(&cache.crash(Survival::Random(seed), None))[1..3], [2, 2]);
    }
}

#[test]
fn a_write_after_a_durable_one_may_replace_it() {
    let cache = cache_after(&[durable(0, 1, 1), write(0, 2, 1)]);
    assert_eq!(sectors(&cache.crash(Survival::Nothing, None))[0], 1);
    assert_eq!(sectors(&cache.crash(Survival::Issued, None))[0], 2);
}

#[test]
fn the_extremes_tell_the_event_in_flight_from_those_before() {
    let cache = cache_after(&[write(0, 1, 1)]);
    for in_flight in [write(512, 2, 1), durable(512, 2, 1)] {
        let found = Survival::EXTREMES
            .map(|survival| sectors(&cache.crash(survival, Some(&in_flight)))[..2].to_vec());
        assert_eq!(found, [[0, 0], [1, 0], [0, 2], [1, 2]]);
    }
    let flushed = cache.crash(Survival::InFlight, Some(&Event::Flush { thread: 0 }));
    assert_eq!(sectors(&flushed)[0], 1);
}

#[test]
fn a_durable_write_in_flight_may_be_torn() {
    let cache = cache_after(&[]);
    let in_flight = durable(0, 1, 2);
    let crash = |seed| sectors(&cache.crash(Survival::Random(seed), Some(&in_flight)));
    assert!((0..100).map(crash).any(|found| found[0] != found[1]));
}

#[test]
fn a_flush_that_failed_is_not_made_good_by_the_next() {
    let lost = |seed| {
        let events = [write(0, 1, 1), Event::FailedFlush { seed }, Event::Flush { thread: 0 }];
        sectors(&cache_after(&events).crash(Survival::Everything, None))[0] == 0
    };
    assert!((0..20).any(lost) && !(0..20).all(lost));
}

#[test]
fn a_flipped_bit_is_in_the_medium_and_in_the_cache() {
    let cache = cache_after(&[write(0, 1, 1), Event::BitFlip { offset: 5, bit: 1 }]);
    assert_eq!(cache.crash(Survival::Nothing, None).to_bytes()[5], 2);
    assert_eq!(cache.crash(Survival::Issued, None).to_bytes()[5], 3);
}

#[test]
fn one_seed_gives_one_image() {
    let cache = cache_after(&[write(0, 1, 8), write(1024, 2, 3)]);
    for seed in 0..50 {
        let crash = || cache.crash(Survival::Random(seed), Some(&write(0, 3, 2)));
        assert_eq!(crash(), crash());
    }
}
