//! The cost of a commit of the engine, compared with a bare durable write of the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab, Medium, Program, Teardown};
use crate::measure::{Key, Metric, Samples};
use crate::results::{Plot, Section, Verdict};

pub const EXPERIMENT: Experiment = Experiment {
    id: "engine-commit",
    title: "A commit over a bare durable write",
    paper: "",
    figure: "",
    about: "The engine alone, one caller: a commit of so many whole blocks, and a bare durable \
            write of as many bytes to the same device, in turns (`commit_ratio` of crate \
            `journal`). And a commit of so many changed bytes to memory that stands for NVRAM, and \
            a bare persist of as many bytes as its record has: a copy, the write-back of its cache \
            lines, a fence, in turns, to the same memory (`nvram_commit`). *Bytes and memory work* \
            is the bare durable write after the work on memory that no commit avoids: copies of \
            the blocks, a checksum, on NVRAM a comparison with the older version.",
    paper_claim: "",
    goal: "At most 1.10 on a block device; at most 4 times a bare persist for 1 KiB on NVRAM.",
    sizes: &[],
    run,
};

const TIME: Metric = Metric::lower("time", "µs");
const BARE: &str = "bare durable write";
const WORK: &str = "bytes and memory work";
const COMMIT: &str = "OneJournal";
const NVRAM: &str = "NVRAM: changed bytes";
const SIZE_MIB: u32 = 128;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let examples = lab.programs().bench.with_file_name("examples");
    let mut panels = Vec::new();
    for device in scale.devices(&["loop", "ssd311"]) {
        let panel = format!("{device}: blocks of a commit");
        let Some(program) = example(&examples, "commit_ratio", section) else { break };
        let lines = on_device(lab, &device, program, scale)?;
        for line in &lines {
            let key = Key::case(&panel, format!("{:.0}", value(line, "blocks")?));
            samples.add(&key, BARE, TIME, value(line, "raw_us")?);
            samples.add(&key, WORK, TIME, value(line, "work_us")?);
            samples.add(&key, COMMIT, TIME, value(line, "commit_us")?);
        }
        let ratios = lines.iter().map(|line| value(line, "ratio")).collect::<Result<Vec<f64>>>()?;
        let worst = ratios.into_iter().fold(0.0, f64::max);
        let claim = format!("{device}: commit over bare write, 1 to 16 blocks, the most");
        section.verdicts.push(Verdict::at_most(claim, "", worst, 1.10));
        panels.push(panel);
    }
    if let Some(program) = example(&examples, "nvram_commit", section) {
        nvram(lab, scale, program, section, samples)?;
        panels.push(NVRAM.to_owned());
    }
    section.plots.push(Plot::bars("Commit, and a bare write of its bytes", TIME.name, panels));
    Ok(())
}

/// `None`, with a note in the section, if it is not built.
fn example(dir: &Path, name: &str, section: &mut Section) -> Option<Program> {
    let path = dir.join(name);
    if path.exists() {
        return Some(Program::new(path));
    }
    section.leave_out(name, "it is not built (cargo build --release --workspace --examples)");
    None
}

fn on_device(
    lab: &Lab,
    device: &Device,
    program: Program,
    scale: &Scale,
) -> Result<Vec<BTreeMap<String, f64>>> {
    let mut teardown = Teardown::default();
    let medium = Medium::prepare(lab, device, "engine", SIZE_MIB, &mut teardown)?;
    if let Some(disk) = medium.disk() {
        disk.slow_down()?;
    }
    let program = program.env("OVERWRITE", "yes").arg(&medium.block);
    let text = program.arg(scale.pick("200", "2000")).run()?;
    teardown.run()?;
    table(&text)
}

fn nvram(
    lab: &Lab,
    scale: &Scale,
    program: Program,
    section: &mut Section,
    samples: &mut Samples,
) -> Result<()> {
    let path = lab.memory().join("nvram-commit");
    let lines = table(&program.arg(&path).arg(scale.pick("5000", "20000")).run()?)?;
    for line in &lines {
        let changed = value(line, "changed")?;
        let key = Key::case(NVRAM, format!("{changed:.0}"));
        for (system, column) in [(BARE, "bare_ns"), (WORK, "work_ns"), (COMMIT, "commit_ns")] {
            samples.add(&key, system, TIME, value(line, column)? / 1e3);
        }
        if changed == 1024.0 {
            let claim = "NVRAM commit of 1 KiB over a bare persist";
            section.verdicts.push(Verdict::at_most(claim, "", value(line, "ratio")?, 4.0));
        }
    }
    Ok(())
}

/// Columns below a line of headings.
fn table(text: &str) -> Result<Vec<BTreeMap<String, f64>>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let line = |line: &str| {
        let values = line.split_whitespace().map(|word| word.parse::<f64>());
        let values = values.collect::<Result<Vec<f64>, _>>();
        let values = values.map_err(|error| Error::other(format!("`{line}`: {error}")))?;
        Ok(names.iter().map(|name| (*name).to_owned()).zip(values).collect())
    };
    lines.filter(|line| !line.trim().is_empty()).map(line).collect()
}

fn value(line: &BTreeMap<String, f64>, name: &str) -> Result<f64> {
    line.get(name).copied().ok_or_else(|| Error::other(format!("no column {name}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_have_names() {
        let lines = super::table("blocks  raw_us\n 1  2.5\n\n16 7\n").unwrap();
        assert_eq!((lines.len(), lines[1]["blocks"], lines[0]["raw_us"]), (2, 16.0, 2.5));
        assert!(super::table("a\nb\n").is_err());
    }
}
