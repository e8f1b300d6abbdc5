//! Tests of the cache before NVRAM.

use super::cache::Cache;
use super::event::Event;
use super::image::Image;
use super::survival::Survival;
use super::unit::Unit;

fn store(offset: u64, byte: u8, len_bytes: usize, thread: usize) -> Event {
    Event::Write { offset, data: vec![byte; len_bytes].into(), thread }
}

fn cache_after(events: &[Event]) -> Cache {
    let mut cache = Cache::new(Image::zeroed(256), Unit::Word);
    events.iter().for_each(|event| cache.apply(event));
    cache
}

/// The results of `view` for the images of many seeds, without repetitions.
fn found<T: Ord>(cache: &Cache, view: impl Fn(Vec<u8>) -> T) -> Vec<T> {
    let image = |seed| view(cache.crash(Survival::Random(seed), None).to_bytes());
    let mut found: Vec<_> = (0..3000).map(image).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn unfenced_words_survive_in_every_subset_and_are_never_torn() {
    let cache = cache_after(&[store(56, 1, 24, 0)]);
    let words = found(&cache, |bytes| {
        let words: Vec<_> = bytes[56..80].chunks(8).map(<[u8]>::to_vec).collect();
        assert!(words.iter().all(|word| word == &[0; 8] || word == &[1; 8]));
        words
    });
    assert_eq!(words.len(), 8);
}

#[test]
fn a_word_that_is_stored_in_part_is_torn_anywhere() {
    let cache = cache_after(&[store(1, 1, 3, 0)]);
    assert_eq!(found(&cache, |bytes| bytes[..8].to_vec()).len(), 8);
}

#[test]
fn a_line_may_hold_older_and_newer_words() {
    let cache = cache_after(&[store(0, 1, 16, 0), store(0, 2, 16, 0)]);
    let pairs = found(&cache, |bytes| (bytes[0], bytes[8]));
    assert_eq!(pairs.len(), 9, "each word any of three: {pairs:?}");
}

#[test]
fn a_fenced_store_is_never_lost_and_its_old_value_never_comes_back() {
    let fence = Event::Flush { thread: 0 };
    let cache = cache_after(&[store(0, 1, 8, 0), store(0, 2, 8, 0), fence, store(8, 3, 8, 0)]);
    assert_eq!(found(&cache, |bytes| (bytes[0], bytes[8])), [(2, 0), (2, 3)]);
}

#[test]
fn a_fence_is_good_for_the_stores_of_its_own_thread() {
    let events =
        [store(0, 1, 8, 1), store(8, 1, 8, 0), store(8, 2, 8, 1), Event::Flush { thread: 1 }];
    let cache = cache_after(&[&events[..], &[store(16, 4, 8, 0)]].concat());
    assert_eq!(cache.crash(Survival::Nothing, None).to_bytes()[..24], {
        [[1; 8], [2; 8], [0; 8]].concat()
    });
    let replaced = cache.crash(Survival::Issued, None).to_bytes()[8];
    assert_eq!(replaced, 2, "the older store of the other thread comes back");
    let other = cache_after(&[store(0, 1, 8, 0), Event::Flush { thread: 1 }]);
    assert_eq!(found(&other, |bytes| bytes[0]), [0, 1]);
}

#[test]
fn the_extremes_tell_the_event_in_flight_from_those_before() {
    let cache = cache_after(&[store(0, 1, 8, 0), store(8, 1, 8, 1)]);
    let ends = |in_flight: &Event| {
        Survival::EXTREMES.map(|survival| {
            let bytes = cache.crash(survival, Some(in_flight)).to_bytes();
            [bytes[0], bytes[8], bytes[16]]
        })
    };
    let stores = ends(&store(16, 2, 8, 0));
    assert_eq!(stores, [[0, 0, 0], [1, 1, 0], [0, 0, 2], [1, 1, 2]]);
    let fences = ends(&Event::Flush { thread: 0 });
    assert_eq!(fences, [[0, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0]]);
}
