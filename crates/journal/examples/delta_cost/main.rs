//! Measures the codecs on pairs of block versions: bytes, and nanoseconds to encode and apply.
//!
//! ```text
//! cargo run --release -p onejournal-journal --example delta_cost -- [BEFORE AFTER]...
//! ```
//!
//! Without arguments, the pairs are generated in the layouts of SQLite's b-tree leaves and of
//! ext4's metadata. BEFORE and AFTER are two states of one file or image, for example a database
//! before and after a transaction. The blocks in which they differ are the pairs. Each two files
//! are one case.
//!
//! A time is the time of one pass over all pairs of the case, divided by their number; the program
//! prints the median over the rounds. In each round every codec has its turn. `runs` is the default
//! delta. `extent` takes the ranges that the writer knows (a page for SQLite, a structure for
//! ext4). `xor-lzo` is DJFS' delta. `lz4` is the new version alone, compressed as a payload is. `-`
//! marks a form that is not smaller than the block. `forms` counts the pairs for which the codec
//! did not give up. The last line of a case is the size of all its `runs` deltas when LZ4
//! compresses them as one payload.

mod pairs;

use std::hint::black_box;
use std::time::Instant;

use onejournal_journal::codec::{CodecError, compress, extent, runs, xor_lzo};
use onejournal_journal::{BLOCK_BYTES, BlockBytes};
use pairs::Pair;

type Failure = Box<dyn std::error::Error>;
type Encode = fn(&Pair, &mut Vec<u8>) -> Option<usize>;
type Apply = fn(&mut BlockBytes, &[u8]) -> Result<(), CodecError>;

const ROUNDS: usize = 201;

const CODECS: [(&str, Encode, Apply); 4] = [
    ("runs", |pair, out| runs::encode(&pair.base, &pair.new, BLOCK_BYTES - 1, out), runs::apply),
    (
        "extent",
        |pair, out| extent::encode(&pair.written, &pair.new, BLOCK_BYTES - 1, out),
        runs::apply,
    ),
    (
        "xor-lzo",
        |pair, out| xor_lzo::encode(&pair.base, &pair.new, BLOCK_BYTES - 1, out),
        xor_lzo::apply,
    ),
    ("lz4", |pair, out| compress_new(&pair.new, out), decompress_into_block),
];

fn compress_new(new: &BlockBytes, out: &mut Vec<u8>) -> Option<usize> {
    let before = out.len();
    compress::compress_if_gain(new, out).then(|| out.len() - before)
}

fn decompress_into_block(block: &mut BlockBytes, bytes: &[u8]) -> Result<(), CodecError> {
    let mut out = Vec::new();
    compress::decompress(bytes, BLOCK_BYTES, &mut out)?;
    block.copy_from_slice(&out);
    Ok(())
}

fn main() -> Result<(), Failure> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.len() % 2 == 1 {
        return Err("give two states of a file: BEFORE AFTER".into());
    }
    let cases: Vec<(String, Vec<Pair>)> = match &paths[..] {
        [] => pairs::made_up(),
        paths => paths.chunks_exact(2).map(from_files).collect::<Result<_, _>>()?,
    };
    println!(
        "{:<16} {:>5}  {:<8} {:>10} {:>10} {:>9} {:>8}  forms",
        "case", "pairs", "codec", "bytes_p50", "bytes_mean", "encode_ns", "apply_ns"
    );
    for (name, pairs) in &cases {
        measure(name, pairs)?;
    }
    Ok(())
}

fn from_files(paths: &[String]) -> Result<(String, Vec<Pair>), Failure> {
    let pairs = pairs::of_images(&std::fs::read(&paths[0])?, &std::fs::read(&paths[1])?);
    if pairs.is_empty() {
        return Err(format!("{} and {} have no differing block", paths[0], paths[1]).into());
    }
    let name = std::path::Path::new(&paths[1]).file_name().unwrap_or_default();
    Ok((name.to_string_lossy().into_owned(), pairs))
}

/// Measures every codec on the pairs of a case and prints a line each.
fn measure(case: &str, pairs: &[Pair]) -> Result<(), Failure> {
    let mut lists = Vec::new();
    for (_, encode, apply) in CODECS {
        lists.push(encode_and_check(pairs, encode, apply)?);
    }
    let mut encode_ns = vec![Vec::new(); CODECS.len()];
    let mut apply_ns = encode_ns.clone();
    for _ in 0..ROUNDS {
        for (at, (_, encode, apply)) in CODECS.iter().enumerate() {
            encode_ns[at].push(encode_pass_ns(pairs, *encode));
            apply_ns[at].push(apply_pass_ns(pairs, &lists[at], *apply));
        }
    }
    for (at, (codec, ..)) in CODECS.iter().enumerate() {
        let bytes: Vec<f64> = lists[at]
            .iter()
            .map(|list| list.as_ref().map_or(BLOCK_BYTES, Vec::len) as f64)
            .collect();
        let mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
        let encoded_count = lists[at].iter().flatten().count();
        let apply_text = match encoded_count {
            0 => "-".into(),
            _ => format!("{:.0}", median(&mut apply_ns[at])),
        };
        println!(
            "{case:<16} {:>5}  {codec:<8} {:>10.0} {mean:>10.0} {:>9.0} {apply_text:>8}  \
             {encoded_count}",
            pairs.len(),
            median(&mut bytes.clone()),
            median(&mut encode_ns[at])
        );
    }
    print_payload(case, &lists[0]);
    Ok(())
}

/// Compresses a case's deltas together, as the payload of one transaction.
fn print_payload(case: &str, lists: &[Option<Vec<u8>>]) {
    let payload: Vec<u8> = lists.iter().flatten().flatten().copied().collect();
    let mut out = Vec::new();
    let mut pass = || {
        out.clear();
        let start = Instant::now();
        black_box(compress::compress_if_gain(black_box(&payload), &mut out));
        start.elapsed().as_nanos() as f64
    };
    let mut ns: Vec<f64> = (0..ROUNDS).map(|_| pass()).collect();
    let ns = median(&mut ns);
    let result = if out.is_empty() { "no gain".into() } else { format!("{} bytes", out.len()) };
    println!("{case:<16} all runs, {} bytes, with lz4: {result}, {ns:.0} ns", payload.len());
}

/// The encoding of each pair; `None` if the codec gives up.
fn encode_and_check(
    pairs: &[Pair],
    encode: Encode,
    apply: Apply,
) -> Result<Vec<Option<Vec<u8>>>, Failure> {
    let mut lists = Vec::new();
    for pair in pairs {
        let mut out = Vec::new();
        let encoded = encode(pair, &mut out);
        if encoded.is_some() {
            let mut block = pair.base;
            apply(&mut block, &out)?;
            if block != pair.new {
                return Err("a codec lost a change".into());
            }
        }
        lists.push(encoded.map(|_| out));
    }
    Ok(lists)
}

fn encode_pass_ns(pairs: &[Pair], encode: Encode) -> f64 {
    let mut out = Vec::with_capacity(4 * BLOCK_BYTES);
    let start = Instant::now();
    for pair in pairs {
        out.clear();
        black_box(encode(black_box(pair), &mut out));
    }
    start.elapsed().as_nanos() as f64 / pairs.len() as f64
}

/// Applies all encodings to the same block: the time does not depend on what the block holds.
fn apply_pass_ns(pairs: &[Pair], lists: &[Option<Vec<u8>>], apply: Apply) -> f64 {
    let mut block = pairs[0].base;
    let start = Instant::now();
    for bytes in lists.iter().flatten() {
        black_box(apply(black_box(&mut block), bytes)).expect("it was applied before");
    }
    start.elapsed().as_nanos() as f64 / lists.iter().flatten().count().max(1) as f64
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
