//! The values that workloads write: one seeded generator, three kinds.
//!
//! A file system that compresses its journal writes less of values that compress. So every headline
//! and every goal uses [`ValueKind::Random`]. `lz4_share_of_each_kind` holds what each kind is to
//! OneJournal's own compression.

use clap::{Args, ValueEnum};

/// How much a value compresses
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ValueKind {
    /// Random characters of base64: LZ4 finds nothing in them
    #[default]
    Random,
    /// English words with the frequencies of prose
    Text,
    /// The same ten letters again and again, behind a number
    Repeated,
}

/// The kinds of values whose bytes are shown beside each other, each with its name in the results.
/// Goals are about the first.
pub const RANDOM_AND_TEXT: [(ValueKind, &str); 2] =
    [(ValueKind::Random, "random"), (ValueKind::Text, "text")];

/// What the values of a client are
#[derive(Args, Debug, Clone, Copy)]
pub struct ValuesArgs {
    /// How much values compress
    #[arg(long, value_enum, default_value_t)]
    values: ValueKind,
    /// The seed of the values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl ValuesArgs {
    /// A client's values of random characters.
    pub fn random(seed: u64) -> ValuesArgs {
        ValuesArgs::of(ValueKind::Random, seed)
    }

    /// A client's values of some kind.
    pub fn of(values: ValueKind, seed: u64) -> ValuesArgs {
        ValuesArgs { values, seed }
    }

    /// A new generator.
    pub fn generator(&self) -> Values {
        self.generator_of(0)
    }

    /// The generator of one of several clients.
    pub fn generator_of(&self, client: u64) -> Values {
        Values::new(self.values, self.seed << 16 | client)
    }
}

/// The 64 characters of base64.
pub const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const LETTERS: &[u8; 10] = b"abcdefghij";
/// A sentence has about so many words.
const WORDS_IN_SENTENCE: u32 = 14;

/// Frequent English words, in the order of their frequency.
const WORDS: &str = include_str!("values/words.txt");

/// Makes values. Two generators with the same kind and seed make the same ones.
#[derive(Debug, Clone)]
pub struct Values {
    kind: ValueKind,
    rng: fastrand::Rng,
    count: u64,
    words: Vec<&'static str>,
    /// For each word, the sum of the weights up to it.
    weights: Vec<f64>,
}

impl Values {
    /// A generator.
    pub fn new(kind: ValueKind, seed: u64) -> Values {
        let words: Vec<&str> = WORDS.split_whitespace().collect();
        let mut sum = 0.0;
        let weights = (0..words.len()).map(|rank| {
            sum += zipf_mandelbrot(rank);
            sum
        });
        let weights = weights.collect();
        Values { kind, rng: fastrand::Rng::with_seed(seed), count: 0, words, weights }
    }

    /// A value of ASCII characters. No two values of a generator are equal, except by chance.
    pub fn next(&mut self, len_bytes: usize) -> String {
        self.count += 1;
        match self.kind {
            ValueKind::Random => self.random(len_bytes),
            ValueKind::Text => self.text(len_bytes),
            ValueKind::Repeated => self.repeated(len_bytes),
        }
    }

    fn random(&mut self, len_bytes: usize) -> String {
        (0..len_bytes).map(|_| char::from(BASE64[self.rng.usize(..BASE64.len())])).collect()
    }

    fn text(&mut self, len_bytes: usize) -> String {
        let mut value = String::with_capacity(len_bytes + 16);
        let mut begins = true;
        while value.len() < len_bytes {
            let word = self.word();
            match word.chars().next() {
                Some(first) if begins => {
                    value.push(first.to_ascii_uppercase());
                    value.push_str(&word[1..]);
                }
                _ => value.push_str(word),
            }
            begins = self.rng.u32(..WORDS_IN_SENTENCE) == 0;
            value.push_str(if begins { ". " } else { " " });
        }
        value.truncate(len_bytes);
        value
    }

    fn word(&mut self) -> &'static str {
        let sum = self.weights.last().copied().unwrap_or_default();
        let at = self.rng.f64() * sum;
        let index = self.weights.partition_point(|weight| *weight < at);
        self.words[index.min(self.words.len() - 1)]
    }

    fn repeated(&mut self, len_bytes: usize) -> String {
        let mut value = format!("{:>12} ", self.count);
        let tail = LETTERS.iter().cycle().map(|letter| char::from(*letter));
        value.extend(tail.take(len_bytes.saturating_sub(value.len())));
        value.truncate(len_bytes);
        value
    }
}

/// The frequency of the word with this rank (the law of Zipf and Mandelbrot), up to a factor.
fn zipf_mandelbrot(rank: usize) -> f64 {
    1.0 / (rank as f64 + 2.7)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of 100 values of 100 characters that is left after LZ4.
    fn lz4_share(kind: ValueKind) -> f64 {
        let mut values = Values::new(kind, 7);
        let all: String = (0..100).map(|_| values.next(100)).collect();
        assert_eq!(all.len(), 10_000);
        lz4_flex::compress(all.as_bytes()).len() as f64 / all.len() as f64
    }

    #[test]
    fn lz4_share_of_each_kind() {
        let (random, text) = (lz4_share(ValueKind::Random), lz4_share(ValueKind::Text));
        assert!(random > 0.99, "{random}");
        assert!((0.55..0.85).contains(&text), "{text}");
        let repeated = lz4_share(ValueKind::Repeated);
        assert!(repeated < 0.1, "{repeated}");
    }

    #[test]
    fn the_seed_decides_and_no_two_are_equal() {
        for kind in ValueKind::value_variants() {
            let of = |seed| {
                let mut values = Values::new(*kind, seed);
                (0..50).map(|_| values.next(40)).collect::<Vec<_>>()
            };
            let mut all = of(1);
            assert_eq!(all, of(1));
            assert!(*kind == ValueKind::Repeated || all != of(2));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 50);
        }
    }
}
