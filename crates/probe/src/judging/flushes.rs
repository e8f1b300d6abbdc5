//! Whether flushes look honoured.
//!
//! This is a conclusion from what can be seen without a power cut: what the kernel knows of the
//! write cache, whether flushes reached the disk, and what they cost. It is not a proof. A disk
//! that waits a while and keeps the data in its volatile cache looks honest here.

use device::{DirectIo, Durability};

use super::figures::Figures;
use crate::measuring::{Medium, WriteCache};

/// A flush that costs at least this many times a write costs clearly more.
const CLEARLY_MORE: u64 = 2;
/// A typical page of flash memory takes longer to store.
const MEDIUM_NS_MIN: u64 = 100_000;
/// In less than this, a disk can do no more than answer the command.
const ANSWER_NS_MAX: u64 = 50_000;
/// A write that takes this long is not a write into a cache.
const CACHED_WRITE_NS_MAX: u64 = 1_000_000;
/// The kernel must send at least one flush for this many that are asked for.
const ASKED_PER_SENT_MAX: u64 = 10;
/// The size whose figures decide.
const LEN_BYTES: u64 = 4 << 10;

/// Where a write is when it has returned, as far as the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// In memory, and nowhere else: nothing is durable.
    Memory,
    /// On the medium ("write through"), as the disk says.
    None,
    /// On the medium ("write through"), which the kernel also assumes if the disk says nothing.
    NotReported,
    /// Perhaps in a cache that loses it ("write back").
    Volatile,
    /// It is not known.
    Unknown,
}

impl Cache {
    /// The place of a write, from the durability of the store (if it is known) and the write cache
    /// of the disks below.
    pub fn of(durability: Option<Durability>, cache: WriteCache) -> Cache {
        match (durability, cache) {
            (Some(Durability::Process | Durability::Reboot), _) => Cache::Memory,
            (None, _) | (Some(Durability::Power), WriteCache::Unknown) => Cache::Unknown,
            (Some(Durability::Power), WriteCache::None) => Cache::None,
            (Some(Durability::Power), WriteCache::NotReported) => Cache::NotReported,
            (Some(Durability::Power), WriteCache::Volatile) => Cache::Volatile,
        }
    }

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Memory => "memory",
            Cache::None => "none",
            Cache::NotReported => "not_reported",
            Cache::Volatile => "volatile",
            Cache::Unknown => "unknown",
        }
    }
}

/// Whether the flushes that were asked for were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// They reached the disks.
    Some,
    /// Next to none reached the disks; the few may be of other programs.
    None,
    /// Next to none reached the loop device in between, whose file is in the page cache.
    NoneToLoop,
    /// It is not known.
    Unknown,
}

impl Sent {
    /// Compares the flushes that were asked for with the counted ones.
    pub fn of(figures: &Figures) -> Sent {
        let asked_count = figures.flushes_asked_count;
        let is_none =
            |reached_count: u64| reached_count.saturating_mul(ASKED_PER_SENT_MAX) < asked_count;
        match (figures.flushes_loop_reached_count, figures.flushes_reached_count) {
            _ if asked_count == 0 => Sent::Unknown,
            (Some(reached_count), _) if is_none(reached_count) => Sent::NoneToLoop,
            (_, None) => Sent::Unknown,
            (_, Some(reached_count)) if is_none(reached_count) => Sent::None,
            (_, Some(_)) => Sent::Some,
        }
    }
}

/// What a flush after a write costs, beside the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// No more than a command that does nothing: the write took no longer than one into a cache,
    /// and the flush took no longer than the write, or than any answer.
    NextToNothing,
    /// Neither of the others.
    Between,
    /// Clearly more than the write, and as long as a medium needs.
    ClearlyMore,
    /// Not measured: the writes went to the page cache, so the flush wrote them; or `fdatasync`
    /// does more than flush.
    Unknown,
}

impl Cost {
    /// The cost of a flush of 4 KiB, where it can be measured alone.
    pub fn of(figures: &Figures, medium: Medium, direct_io: DirectIo) -> Cost {
        let size = figures.of_size(LEN_BYTES);
        match (medium.overwrites_in_place(), direct_io) {
            (true, DirectIo::Yes) => Cost::of_times(size.write.p50_ns, size.flush.p50_ns),
            (false, _) | (_, DirectIo::No | DirectIo::Unknown) => Cost::Unknown,
        }
    }

    /// Whether making data durable takes no longer than an answer. Where the cost of a flush alone
    /// is not known, the appends show that: a medium, or a server with one, needs longer.
    pub fn is_next_to_nothing(self, figures: &Figures) -> bool {
        match self {
            Cost::NextToNothing => true,
            Cost::Between | Cost::ClearlyMore => false,
            Cost::Unknown => figures.append_sync.latency.p50_ns < ANSWER_NS_MAX,
        }
    }

    fn of_times(write_ns: u64, flush_ns: u64) -> Cost {
        let is_cached = write_ns < CACHED_WRITE_NS_MAX;
        let is_answer = flush_ns < ANSWER_NS_MAX || flush_ns <= write_ns;
        let is_medium = flush_ns >= MEDIUM_NS_MIN && flush_ns >= CLEARLY_MORE * write_ns;
        match (is_cached, is_answer, is_medium) {
            (_, false, true) => Cost::ClearlyMore,
            (true, true, _) => Cost::NextToNothing,
            _ => Cost::Between,
        }
    }
}

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Flushes look honoured.
    Honoured,
    /// Flushes look ignored.
    Suspicious,
    /// Neither can be concluded.
    Unknown,
    /// The question makes no sense: nothing is durable here.
    NothingDurable,
}

impl Verdict {
    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Honoured => "honoured",
            Verdict::Suspicious => "suspicious",
            Verdict::Unknown => "unknown",
            Verdict::NothingDurable => "nothing_durable",
        }
    }
}

/// Why the verdict is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The bytes are in memory.
    InMemory,
    /// The disk says that it has no volatile cache.
    NoVolatileCache,
    /// The kernel assumes that there is no volatile cache, and the disk says nothing.
    NoCacheReported,
    /// A flush costs clearly more than a write.
    CostsMoreThanAWrite,
    /// The user knows that the cache survives a power cut.
    ProtectedCache,
    /// Next to no flushes were sent.
    NotSent,
    /// A flush costs next to nothing, and the cache is volatile.
    CostsNextToNothing,
    /// Whether there is a volatile cache is not known.
    CacheUnknown,
    /// A flush costs neither clearly more than a write nor next to nothing.
    CostUnclear,
    /// The cost of a flush alone cannot be measured.
    CostUnknown,
}

impl Reason {
    /// The reason for the verdict. `is_protected`: the user says that the cache survives a power
    /// cut. That explains flushes that do nothing. It does not help where none is sent: below, a
    /// loop device may keep the data in memory until a flush.
    pub fn of(cache: Cache, sent: Sent, cost: Cost, is_protected: bool) -> Reason {
        match (cache, sent, cost) {
            (Cache::Memory, _, _) => Reason::InMemory,
            (_, Sent::NoneToLoop, _) | (Cache::Volatile, Sent::None, _) => Reason::NotSent,
            (Cache::None, _, _) => Reason::NoVolatileCache,
            (Cache::NotReported | Cache::Volatile | Cache::Unknown, _, _) if is_protected => {
                Reason::ProtectedCache
            }
            (Cache::NotReported, _, _) => Reason::NoCacheReported,
            (Cache::Volatile, _, Cost::ClearlyMore) => Reason::CostsMoreThanAWrite,
            (Cache::Volatile, _, Cost::NextToNothing) => Reason::CostsNextToNothing,
            (Cache::Volatile, _, Cost::Between) => Reason::CostUnclear,
            (Cache::Volatile, _, Cost::Unknown) => Reason::CostUnknown,
            (Cache::Unknown, _, _) => Reason::CacheUnknown,
        }
    }

    /// The verdict that it is the reason for.
    pub fn verdict(self) -> Verdict {
        match self {
            Reason::InMemory => Verdict::NothingDurable,
            Reason::NoVolatileCache | Reason::CostsMoreThanAWrite | Reason::ProtectedCache => {
                Verdict::Honoured
            }
            Reason::NotSent | Reason::CostsNextToNothing => Verdict::Suspicious,
            Reason::NoCacheReported
            | Reason::CacheUnknown
            | Reason::CostUnclear
            | Reason::CostUnknown => Verdict::Unknown,
        }
    }

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Reason::InMemory => "in_memory",
            Reason::NoVolatileCache => "no_volatile_cache",
            Reason::NoCacheReported => "no_cache_reported",
            Reason::CostsMoreThanAWrite => "costs_more_than_a_write",
            Reason::ProtectedCache => "protected_cache",
            Reason::NotSent => "not_sent",
            Reason::CostsNextToNothing => "costs_next_to_nothing",
            Reason::CacheUnknown => "cache_unknown",
            Reason::CostUnclear => "cost_unclear",
            Reason::CostUnknown => "cost_unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::figures;
    use super::*;

    const CACHES: [Cache; 5] =
        [Cache::Memory, Cache::None, Cache::NotReported, Cache::Volatile, Cache::Unknown];
    const SENT: [Sent; 4] = [Sent::Some, Sent::None, Sent::NoneToLoop, Sent::Unknown];
    const COSTS: [Cost; 4] = [Cost::NextToNothing, Cost::Between, Cost::ClearlyMore, Cost::Unknown];

    /// The verdicts by cost, in the order of `COSTS`: honoured, suspicious, unknown, or nothing
    /// durable (-).
    fn expected(cache: Cache, sent: Sent, is_protected: bool) -> &'static str {
        match (cache, sent, is_protected) {
            (Cache::Memory, _, _) => "----",
            (_, Sent::NoneToLoop, _) => "ssss",
            (Cache::None, _, _) => "hhhh",
            (Cache::NotReported, _, false) => "uuuu",
            (Cache::Volatile, Sent::Some | Sent::Unknown, false) => "suhu",
            (Cache::Volatile, Sent::None, _) => "ssss",
            (Cache::Unknown, _, false) => "uuuu",
            (Cache::NotReported | Cache::Volatile | Cache::Unknown, _, true) => "hhhh",
        }
    }

    #[test]
    fn every_combination_has_its_verdict() {
        for (cache, sent) in CACHES.into_iter().flat_map(|cache| SENT.map(|sent| (cache, sent))) {
            for is_protected in [false, true] {
                let letter = |cost| {
                    let reason = Reason::of(cache, sent, cost, is_protected);
                    match reason.verdict() {
                        Verdict::Honoured => 'h',
                        Verdict::Suspicious => 's',
                        Verdict::Unknown => 'u',
                        Verdict::NothingDurable => '-',
                    }
                };
                let found: String = COSTS.into_iter().map(letter).collect();
                let wanted = expected(cache, sent, is_protected);
                assert_eq!(found, wanted, "{cache:?} {sent:?} {is_protected}");
            }
        }
    }

    #[test]
    fn cost_of_a_flush_follows_from_write_and_flush_times() {
        let micros = |write: u64, flush: u64| Cost::of_times(write * 1000, flush * 1000);
        let cases = [
            // An SSD without protection, a hard disk, an eMMC.
            (25, 600, Cost::ClearlyMore),
            (90, 8_300, Cost::ClearlyMore),
            (300, 1_500, Cost::ClearlyMore),
            // NVMe, SATA and USB that ignore flushes.
            (15, 8, Cost::NextToNothing),
            (60, 55, Cost::NextToNothing),
            (250, 200, Cost::NextToNothing),
            // More than a write, and still faster than flash.
            (4, 30, Cost::NextToNothing),
            (60, 90, Cost::Between),
            (4, 90, Cost::Between),
            (60, 130, Cost::ClearlyMore),
            // The write itself reached the medium.
            (8_000, 100, Cost::Between),
            (8_000, 10, Cost::Between),
            (8_000, 17_000, Cost::ClearlyMore),
        ];
        for (write, flush, expected) in cases {
            assert_eq!(micros(write, flush), expected, "write {write} µs, flush {flush} µs");
        }
    }

    #[test]
    fn the_cost_is_known_only_of_a_flush_alone() {
        use Medium::{BlockDevice, Ext, ExtDataJournal, Other, Xfs};
        let of = |medium, direct_io| Cost::of(&figures(20_000, 900_000), medium, direct_io);
        for medium in [BlockDevice, Ext, Xfs] {
            assert_eq!(of(medium, DirectIo::Yes), Cost::ClearlyMore);
            assert_eq!(
                [DirectIo::No, DirectIo::Unknown].map(|io| of(medium, io)),
                [Cost::Unknown; 2]
            );
        }
        for medium in [ExtDataJournal, Other] {
            let all = [DirectIo::Yes, DirectIo::No, DirectIo::Unknown];
            assert_eq!(all.map(|io| of(medium, io)), [Cost::Unknown; 3], "{medium:?}");
        }
    }

    #[test]
    fn where_the_cost_is_not_known_the_appends_show_that_nothing_is_done() {
        let of = |cost: Cost, append_ns| {
            let mut figures = figures(1, 1);
            figures.append_sync.latency.p50_ns = append_ns;
            cost.is_next_to_nothing(&figures)
        };
        assert_eq!(COSTS.map(|cost| of(cost, 49_999)), [true, false, false, true]);
        assert_eq!(COSTS.map(|cost| of(cost, 50_000)), [true, false, false, false]);
    }

    #[test]
    fn whether_flushes_were_sent() {
        let sent = |flushes_asked_count, flushes_reached_count, flushes_loop_reached_count| {
            Sent::of(&Figures {
                flushes_asked_count,
                flushes_reached_count,
                flushes_loop_reached_count,
                ..figures(1, 1)
            })
        };
        assert_eq!([sent(9, Some(0), None), sent(9, Some(1), None)], [Sent::None, Sent::Some]);
        // A few flushes of other programs do not hide that no flush of the probe was sent.
        assert_eq!(sent(9000, Some(3), None), Sent::None);
        assert_eq!(sent(300, Some(290), None), Sent::Some);
        assert_eq!(sent(300, Some(900), Some(300)), Sent::Some);
        assert_eq!([sent(9, None, None), sent(0, Some(0), Some(0))], [Sent::Unknown; 2]);
        assert_eq!(sent(9, None, Some(9)), Sent::Unknown);
        for reached in [None, Some(0), Some(300)] {
            assert_eq!(sent(300, reached, Some(3)), Sent::NoneToLoop);
        }
    }

    #[test]
    fn memory_has_no_cache_to_flush_and_an_unknown_store_an_unknown_one() {
        let all =
            [WriteCache::Volatile, WriteCache::None, WriteCache::NotReported, WriteCache::Unknown];
        let of = |durability| all.map(|cache| Cache::of(durability, cache));
        assert_eq!(of(Some(Durability::Process)), [Cache::Memory; 4]);
        assert_eq!(of(None), [Cache::Unknown; 4]);
        let expected = [Cache::Volatile, Cache::None, Cache::NotReported, Cache::Unknown];
        assert_eq!(of(Some(Durability::Power)), expected);
    }
}
