//! Whether flushes look honoured.
//!
//! This is a conclusion from what can be seen without a power cut: what the kernel knows of the
//! write cache, whether flushes reached the disk, and what they cost. It is not a proof. A disk
//! that waits a while and keeps the data in its volatile cache looks honest here.

use device::probe::WriteCache;

use super::figures::Figures;

/// A flush that costs at least this many times a write costs clearly more.
const CLEARLY_MORE: u64 = 2;
/// No flash memory stores a page in less than this, so no flush of a volatile cache is faster.
const MEDIUM_NS_MIN: u64 = 100_000;
/// In less than this, a disk can do no more than answer the command.
const ANSWER_NS_MAX: u64 = 50_000;
/// A write that takes this long is not a write into a cache.
const CACHED_WRITE_NS_MAX: u64 = 1_000_000;
/// The size whose figures decide.
const LEN_BYTES: u64 = 4 << 10;

/// Where a write is when it has returned, as far as the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// In memory, and nowhere else: nothing is durable.
    Memory,
    /// On the medium ("write through").
    None,
    /// Perhaps in a cache that loses it ("write back").
    Volatile,
    Unknown,
}

impl Cache {
    pub fn of(is_power_safe: bool, cache: WriteCache) -> Cache {
        match (is_power_safe, cache) {
            (false, _) => Cache::Memory,
            (true, WriteCache::None) => Cache::None,
            (true, WriteCache::Volatile) => Cache::Volatile,
            (true, WriteCache::Unknown) => Cache::Unknown,
        }
    }

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Memory => "memory",
            Cache::None => "none",
            Cache::Volatile => "volatile",
            Cache::Unknown => "unknown",
        }
    }
}

/// Whether a flush that was asked for reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// At least one did.
    Some,
    /// Not one of many did.
    None,
    Unknown,
}

impl Sent {
    pub fn of(figures: &Figures) -> Sent {
        match (figures.flushes_asked_count, figures.flushes_reached_count) {
            (_, None) | (0, _) => Sent::Unknown,
            (_, Some(0)) => Sent::None,
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
    /// Not measured: the writes went to the page cache, so the flush wrote them.
    Unknown,
}

impl Cost {
    pub fn of(figures: &Figures, is_direct: bool) -> Cost {
        let size = figures.of_size(LEN_BYTES);
        match is_direct {
            true => Cost::of_times(size.write.p50_ns, size.flush.p50_ns),
            false => Cost::Unknown,
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
    Honoured,
    Suspicious,
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
    InMemory,
    NoVolatileCache,
    CostsMoreThanAWrite,
    /// The user knows that the cache survives a power cut.
    ProtectedCache,
    NotSent,
    CostsNextToNothing,
    CacheUnknown,
    CostUnclear,
    CostUnknown,
}

impl Reason {
    /// The reason for the verdict. `is_protected`: the user says that the cache survives a power
    /// cut. That explains flushes that do nothing. It does not help where none is sent: below, a
    /// loop device may keep the data in memory until a flush.
    pub fn of(cache: Cache, sent: Sent, cost: Cost, is_protected: bool) -> Reason {
        match (cache, sent, cost) {
            (Cache::Memory, _, _) => Reason::InMemory,
            (Cache::None, _, _) => Reason::NoVolatileCache,
            (Cache::Volatile, Sent::None, _) => Reason::NotSent,
            (Cache::Volatile | Cache::Unknown, _, _) if is_protected => Reason::ProtectedCache,
            (Cache::Volatile | Cache::Unknown, _, Cost::ClearlyMore) => Reason::CostsMoreThanAWrite,
            (Cache::Volatile, _, Cost::NextToNothing) => Reason::CostsNextToNothing,
            (Cache::Volatile, _, Cost::Between) => Reason::CostUnclear,
            (Cache::Volatile, _, Cost::Unknown) => Reason::CostUnknown,
            (Cache::Unknown, _, _) => Reason::CacheUnknown,
        }
    }

    pub fn verdict(self) -> Verdict {
        match self {
            Reason::InMemory => Verdict::NothingDurable,
            Reason::NoVolatileCache | Reason::CostsMoreThanAWrite | Reason::ProtectedCache => {
                Verdict::Honoured
            }
            Reason::NotSent | Reason::CostsNextToNothing => Verdict::Suspicious,
            Reason::CacheUnknown | Reason::CostUnclear | Reason::CostUnknown => Verdict::Unknown,
        }
    }

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Reason::InMemory => "in_memory",
            Reason::NoVolatileCache => "no_volatile_cache",
            Reason::CostsMoreThanAWrite => "costs_more_than_a_write",
            Reason::ProtectedCache => "protected_cache",
            Reason::NotSent => "not_sent",
            Reason::CostsNextToNothing => "costs_next_to_nothing",
            Reason::CacheUnknown => "cache_unknown",
            Reason::CostUnclear => "cost_unclear",
            Reason::CostUnknown => "cost_unknown",
        }
    }

    /// The reason for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Reason::InMemory => "The file system is in memory. Nothing on it survives a power cut.",
            Reason::NoVolatileCache => {
                "The disk reports no volatile cache (write through), so there is nothing to flush."
            }
            Reason::CostsMoreThanAWrite => "A flush costs clearly more than a write.",
            Reason::ProtectedCache => {
                "You say that the cache of the disk survives a power cut (--protected-cache)."
            }
            Reason::NotSent => {
                "The disk has a volatile cache (write back), and the kernel sent it no flush for any fdatasync. Look for \
                 the mount option nobarrier."
            }
            Reason::CostsNextToNothing => {
                "The disk has a volatile cache (write back), and a flush costs next to nothing. Either its cache survives \
                 a power cut, or the disk (or what emulates it) ignores flushes. If the data sheet promises power-loss \
                 protection, give --protected-cache."
            }
            Reason::CacheUnknown => {
                "What is below the file system does not say whether it has a volatile cache."
            }
            Reason::CostUnclear => {
                "A flush costs neither clearly more than a write nor next to nothing."
            }
            Reason::CostUnknown => {
                "Direct I/O is refused here, so the cost of a flush alone cannot be measured."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    const CACHES: [Cache; 4] = [Cache::Memory, Cache::None, Cache::Volatile, Cache::Unknown];
    const SENT: [Sent; 3] = [Sent::Some, Sent::None, Sent::Unknown];
    const COSTS: [Cost; 4] = [Cost::NextToNothing, Cost::Between, Cost::ClearlyMore, Cost::Unknown];

    /// The verdicts by cost, in the order of `COSTS`: honoured, suspicious, unknown, or nothing
    /// durable (-).
    fn expected(cache: Cache, sent: Sent, is_protected: bool) -> &'static str {
        match (cache, sent, is_protected) {
            (Cache::Memory, _, _) => "----",
            (Cache::None, _, _) => "hhhh",
            (Cache::Volatile, Sent::Some, false) => "suhu",
            (Cache::Volatile, Sent::None, _) => "ssss",
            (Cache::Volatile, Sent::Unknown, false) => "suhu",
            (Cache::Unknown, Sent::Some, false) => "uuhu",
            (Cache::Unknown, Sent::None, false) => "uuhu",
            (Cache::Unknown, Sent::Unknown, false) => "uuhu",
            (Cache::Volatile | Cache::Unknown, _, true) => "hhhh",
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
    fn what_a_flush_costs() {
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
        assert_eq!(Cost::of(&figures(20_000, 900_000), true), Cost::ClearlyMore);
        assert_eq!(Cost::of(&figures(20_000, 900_000), false), Cost::Unknown);
    }

    #[test]
    fn whether_flushes_reached_the_disk() {
        let sent = |flushes_asked_count, flushes_reached_count| {
            Sent::of(&Figures { flushes_asked_count, flushes_reached_count, ..figures(1, 1) })
        };
        assert_eq!([sent(9, Some(0)), sent(9, Some(1))], [Sent::None, Sent::Some]);
        assert_eq!([sent(9, None), sent(0, Some(0))], [Sent::Unknown; 2]);
    }

    #[test]
    fn memory_has_no_cache_to_flush() {
        let all = [WriteCache::Volatile, WriteCache::None, WriteCache::Unknown];
        assert_eq!(all.map(|cache| Cache::of(false, cache)), [Cache::Memory; 3]);
        let expected = [Cache::Volatile, Cache::None, Cache::Unknown];
        assert_eq!(all.map(|cache| Cache::of(true, cache)), expected);
    }
}
