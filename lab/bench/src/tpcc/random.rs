//! The standard's random numbers, strings and names (clauses 2.1.6 and 4.3.2).

use super::scale::Scale;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const ALPHANUMERICS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const DIGITS: &[u8] = b"0123456789";

/// NURand's constants C: of last names, customers and items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    /// The constant for last names. It is different for loading and for running.
    pub last_name: u32,
    customer: u32,
    item: u32,
}

/// By how much the last names' C of a run may differ from that of the load (clause 2.1.6.1), at the
/// standard's A of 255.
fn is_delta_allowed(delta: u32) -> bool {
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

/// Random input of one load or run.
pub struct Random {
    rng: fastrand::Rng,
    scale: Scale,
    constants: Constants,
}

impl Random {
    /// For loading.
    pub fn for_load(seed: u64, scale: Scale) -> Random {
        let mut rng = fastrand::Rng::with_seed(seed);
        let constants = draw(&mut rng, scale);
        Random { rng, scale, constants }
    }

    /// For running on a database that was loaded with `load_c_last`.
    pub fn for_run(seed: u64, scale: Scale, load_c_last: u32) -> Random {
        let mut rng = fastrand::Rng::with_seed(seed);
        let [a, _, _] = scale.nurand_a();
        let fits = |c: u32| is_delta_allowed(c.abs_diff(load_c_last) * 256 / (a + 1));
        let last_name = loop {
            let c = rng.u32(0..=a);
            if fits(c) {
                break c;
            }
        };
        let constants = Constants { last_name, ..draw(&mut rng, scale) };
        Random { rng, scale, constants }
    }

    /// The C of last names, which a run needs from the load.
    pub fn c_last(&self) -> u32 {
        self.constants.last_name
    }

    /// Uniform, both ends included.
    pub fn uniform(&mut self, from: u32, to: u32) -> u32 {
        self.rng.u32(from..=to)
    }

    /// True this many times of a hundred.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.uniform(1, 100) <= chance
    }

    /// Another warehouse than `home`; `home` if there is only one.
    pub fn remote_warehouse(&mut self, home: u32, warehouse_count: u32) -> u32 {
        if warehouse_count == 1 {
            return home;
        }
        let other = self.uniform(1, warehouse_count - 1);
        other + u32::from(other >= home)
    }

    fn nurand(&mut self, a: u32, c: u32, from: u32, to: u32) -> u32 {
        let mixed = self.uniform(0, a) | self.uniform(from, to);
        (mixed + c) % (to - from + 1) + from
    }

    /// Number of a customer.
    pub fn customer(&mut self) -> u32 {
        let [_, a, _] = self.scale.nurand_a();
        self.nurand(a, self.constants.customer, 1, self.scale.customer_count())
    }

    /// Number of an item.
    pub fn item(&mut self) -> u32 {
        let [_, _, a] = self.scale.nurand_a();
        self.nurand(a, self.constants.item, 1, self.scale.item_count())
    }

    /// A customer's last name.
    pub fn last_name(&mut self) -> String {
        let [a, _, _] = self.scale.nurand_a();
        last_name(self.nurand(a, self.constants.last_name, 0, self.scale.last_name_count() - 1))
    }

    fn string(&mut self, from: u32, to: u32, alphabet: &[u8]) -> String {
        let len = self.uniform(from, to);
        (0..len).map(|_| char::from(alphabet[self.rng.usize(..alphabet.len())])).collect()
    }

    /// "a-string": letters and digits.
    pub fn text(&mut self, from: u32, to: u32) -> String {
        self.string(from, to, ALPHANUMERICS)
    }

    /// "n-string": digits.
    pub fn digits(&mut self, count: u32) -> String {
        self.string(count, count, DIGITS)
    }

    /// Capital letters.
    pub fn letters(&mut self, count: u32) -> String {
        self.string(count, count, LETTERS)
    }

    /// I_DATA and S_DATA: one in ten says ORIGINAL somewhere.
    pub fn brand_data(&mut self) -> String {
        let mut data = self.text(26, 50);
        if self.percent(10) {
            let at = self.rng.usize(..=data.len() - ORIGINAL.len());
            data.replace_range(at..at + ORIGINAL.len(), ORIGINAL);
        }
        data
    }

    /// 1 to `count` in random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// Puts a slice in random order.
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        self.rng.shuffle(slice);
    }
}

/// The word that marks an item or a stock as of a brand.
pub const ORIGINAL: &str = "ORIGINAL";

fn draw(rng: &mut fastrand::Rng, scale: Scale) -> Constants {
    let [last_name, customer, item] = scale.nurand_a().map(|a| rng.u32(0..=a));
    Constants { last_name, customer, item }
}

/// The last name of this number: a syllable for each of three digits.
pub fn last_name(number: u32) -> String {
    [100, 10, 1].map(|place| SYLLABLES[(number / place % 10) as usize]).concat()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn last_names_are_the_standards() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    /// Counts of the results of `draw`, which must be in `from..=to` and come near both ends.
    fn spread(from: u32, to: u32, mut draw: impl FnMut() -> u32) -> HashMap<u32, u32> {
        let mut counts = HashMap::new();
        for _ in 0..200_000 {
            let value = draw();
            assert!((from..=to).contains(&value), "{value} is not in {from} to {to}");
            *counts.entry(value).or_default() += 1;
        }
        let margin = (to - from) / 100 + 1;
        assert!(*counts.keys().min().unwrap() < from + margin);
        assert!(*counts.keys().max().unwrap() > to - margin);
        counts
    }

    #[test]
    fn nurand_keeps_its_range_and_prefers_some() {
        for scale in [Scale::Full, Scale::Small] {
            for seed in 0..3 {
                let mut random = Random::for_load(seed, scale);
                let customers = spread(1, scale.customer_count(), || random.customer());
                let items = spread(1, scale.item_count(), || random.item());
                // Uniform numbers would exceed their mean by half in none of these.
                for (counts, count) in
                    [(customers, scale.customer_count()), (items, scale.item_count())]
                {
                    let mean = 200_000 / count;
                    assert!(*counts.values().max().unwrap() > 3 * mean.max(2), "not skewed");
                }
            }
        }
    }

    #[test]
    fn a_run_has_another_c_than_the_load() {
        for seed in 0..500 {
            let load = Random::for_load(seed, Scale::Full).c_last();
            let delta = Random::for_run(seed + 1, Scale::Full, load).c_last().abs_diff(load);
            assert!((65..=119).contains(&delta) && ![96, 112].contains(&delta), "{delta}");
            let load = Random::for_load(seed, Scale::Small).c_last();
            let delta = Random::for_run(seed + 1, Scale::Small, load).c_last().abs_diff(load);
            assert!([9, 10, 11, 13].contains(&delta), "{delta}");
        }
    }

    #[test]
    fn remote_is_every_other_warehouse() {
        let mut random = Random::for_load(1, Scale::Small);
        for home in 1..=4 {
            let seen: HashSet<u32> = (0..200).map(|_| random.remote_warehouse(home, 4)).collect();
            assert_eq!(seen, (1..=4).filter(|warehouse| *warehouse != home).collect());
        }
        assert_eq!(random.remote_warehouse(1, 1), 1);
    }

    #[test]
    fn texts_do_not_compress() {
        let mut random = Random::for_load(1, Scale::Full);
        let all: String = (0..40).map(|_| random.text(300, 500)).collect();
        let packed = lz4_flex::compress(all.as_bytes()).len();
        assert!(packed as f64 > 0.99 * all.len() as f64, "{packed} of {}", all.len());
    }

    #[test]
    fn one_in_ten_is_original() {
        let mut random = Random::for_load(1, Scale::Full);
        let data: Vec<String> = (0..10_000).map(|_| random.brand_data()).collect();
        assert!(data.iter().all(|data| (26..=50).contains(&data.len())));
        let count = data.iter().filter(|data| data.contains(ORIGINAL)).count();
        assert!((850..1150).contains(&count), "{count}");
    }

    #[test]
    fn a_permutation_has_every_number_once() {
        let mut numbers = Random::for_load(1, Scale::Full).permutation(3000);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=3000));
    }
}
