//! One writer, the variants in turns.

use std::time::Instant;

use crate::disk::{Asked, COLUMNS, Disk};
use crate::{Arguments, Failed, commit, median, open};

const ROUND_COMMITS: usize = 400;

struct Variant {
    name: &'static str,
    what: &'static str,
    parameters: String,
    level: &'static str,
}

fn variants(arguments: &Arguments) -> Vec<Variant> {
    let variant = |name, what, parameters: &str, level| Variant {
        name,
        what,
        parameters: parameters.to_owned(),
        level,
    };
    let mut variants = vec![
        variant("full", "plain, FULL", "", "FULL"),
        variant("off", "plain, OFF", "", "OFF"),
        variant("disk", "log on disk, FULL", &arguments.parameters(), "FULL"),
    ];
    if let Some(nvram) = &arguments.nvram {
        let log = arguments.directory.join("nvram-log");
        let (ours, log, nvram) = (arguments.parameters(), log.display(), nvram.display());
        let more = format!("{ours}&log={log}&nvram={nvram}&durability=process");
        variants.push(variant("nvram", "lanes in NVRAM, FULL", &more, "FULL"));
    }
    variants
}

pub fn one_writer(arguments: &Arguments) -> Result<(), Failed> {
    let mut variants = variants(arguments);
    variants.retain(|variant| arguments.variant.is_empty() || variant.name == arguments.variant);
    let disk = Disk::of(&arguments.directory)?;
    let mut connections = Vec::new();
    for Variant { name, parameters, level, .. } in &variants {
        let path = arguments.directory.join(format!("one-{name}.db"));
        connections.push(open(&path, parameters, level)?);
    }
    let mut times = vec![Vec::new(); variants.len()];
    let mut asked = vec![Asked::default(); variants.len()];
    for _ in 0..arguments.rounds {
        for ((connection, times), asked) in connections.iter().zip(&mut times).zip(&mut asked) {
            times.push(asked.during(&disk, ROUND_COMMITS as u64, || {
                let begin = Instant::now();
                commit(connection, ROUND_COMMITS)?;
                Ok(begin.elapsed().as_nanos() as f64 / ROUND_COMMITS as f64)
            })?);
        }
    }
    let times_of = |name: &str| {
        variants
            .iter()
            .zip(&times)
            .find(|(variant, _)| variant.name == name)
            .map(|(_, times)| times)
    };
    let columns = ["one writer", "ns a commit", "least", "x faster FULL", "x OFF's time"];
    let [name, median_ns, least_ns, full, off] = columns;
    println!("{name:<22} {median_ns:>12} {least_ns:>8} {full:>14} {off:>13}{COLUMNS}");
    for ((variant, mine), asked) in variants.iter().zip(&times).zip(&asked) {
        let full = times_of("full").map_or_else(String::new, |full| ratio(full, mine));
        let off = times_of("off").map_or_else(String::new, |off| ratio(mine, off));
        let least = mine.iter().copied().fold(f64::INFINITY, f64::min);
        let time = median(mine.clone());
        println!(
            "{:<22} {time:>12.0} {least:>8.0} {full:>14} {off:>13}{}",
            variant.what,
            asked.each()
        );
    }
    Ok(())
}

/// Median of the rounds' ratios.
fn ratio(over: &[f64], under: &[f64]) -> String {
    let ratios = over.iter().zip(under).map(|(over, under)| over / under).collect();
    format!("{:.2}", median(ratios))
}
