//! The content of the page: the first screen, all verdicts, the machine, and a section for each
//! experiment.

use super::chart;
use super::document::{Block, Table};
use super::number::{shown, tick, whole};
use super::palette::Palette;
use super::summary;
use crate::error::Result;
use crate::results::{
    Build, Disturbance, Machine, Outcome, Row, Section, SectionFile, Size, Verdict,
};

/// The whole page.
pub fn report(files: &[SectionFile], palette: &Palette) -> Result<Vec<Block>> {
    let mut blocks = vec![Block::heading(1, "OneJournal: measurements", "top")];
    blocks.extend(summary::blocks(files));
    blocks.push(Block::heading(2, "Claims and what was measured", "verdicts"));
    blocks.push(Block::Paragraph(
        "Each experiment lists its claims. *Paper* is the value that the paper reports, of its own \
         system on its own machine. *Missed* means that OneJournal did not reach its goal; *shown* \
         means that there was no goal, or that the machine was too busy to judge."
            .into(),
    ));
    blocks.push(Block::Table(tallies(files)));
    blocks.push(Block::Paragraph("All claims that were missed:".into()));
    blocks.push(Block::Table(missed(files)));
    blocks.push(Block::heading(2, "How it was measured", "how"));
    blocks.push(Block::Paragraph(
        "The experiments follow those of the papers, with OneJournal and its alternatives. The \
         papers' own systems are not run; the sections say what else differs. The systems take \
         turns in each round. A value is the median of the rounds. Its quartiles are in brackets \
         if one differs from it by more than 3 %, and the whiskers of a figure show them. A ratio \
         is that of the medians. *From round to round* are the quartiles of the ratios of single \
         rounds, so the ratio of the medians may be outside of them. Counts are device requests \
         for each operation. `onejournal-bench report DIR` draws this page \
         from the JSON files beside it."
            .into(),
    ));
    blocks.extend(machines(files));
    for file in files {
        blocks.extend(section(file, palette)?);
    }
    Ok(blocks)
}

/// The machine and build of all results if they are the same, otherwise of each.
fn machines(files: &[SectionFile]) -> Vec<Block> {
    let mut items: Vec<(String, Vec<f64>)> = Vec::new();
    for file in files {
        let item = format!("{} {}", of_machine(&file.machine), of_build(&file.build));
        let known = items.iter().position(|(known, _)| *known == item).unwrap_or(items.len());
        if known == items.len() {
            items.push((item, Vec::new()));
        }
        items[known].1.extend(file.machine.wake_up_us);
    }
    let items = items.into_iter().map(|(item, wake_ups)| item + &of_wake_ups(wake_ups)).collect();
    vec![Block::heading(2, "Machine", "machine"), Block::Items(items)]
}

/// What it costs to wake another CPU, from the least to the most of the runs that measured it.
fn of_wake_ups(mut wake_ups: Vec<f64>) -> String {
    wake_ups.sort_unstable_by(f64::total_cmp);
    let (Some(least), Some(most)) = (wake_ups.first(), wake_ups.last()) else {
        return String::new();
    };
    let times = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    format!(" A byte goes to another CPU and back in {times} µs.")
}

fn of_machine(machine: &Machine) -> String {
    format!(
        "{}, {} CPUs, {} GiB, Linux {}, {}; disk {}.",
        machine.cpu,
        machine.cpu_count,
        machine.memory_gib,
        machine.kernel,
        machine.distribution,
        machine.disk
    )
}

fn of_build(build: &Build) -> String {
    let revision =
        if build.revision.is_empty() { String::new() } else { format!(" ({})", build.revision) };
    format!("OneJournal {}{revision}, {}, SQLite {}.", build.version, build.profile, build.sqlite)
}

/// How many claims of each experiment have which outcome.
fn tallies(files: &[SectionFile]) -> Table {
    let header = ["experiment", "reached", "missed", "shown"].map(str::to_owned).to_vec();
    let row = |file: &SectionFile| {
        let count = |wanted: Outcome| {
            let verdicts = file.section.verdicts.iter();
            match verdicts.filter(|verdict| verdict.outcome == wanted).count() {
                0 => String::new(),
                count => count.to_string(),
            }
        };
        let counts = [Outcome::Reached, Outcome::Missed, Outcome::Shown].map(count);
        std::iter::once(link(file)).chain(counts).collect()
    };
    Table { header, rows: files.iter().map(row).collect(), left_columns: 1 }
}

fn missed(files: &[SectionFile]) -> Table {
    let header = ["experiment", "claim", "paper", "measured"].map(str::to_owned).to_vec();
    let rows = files.iter().flat_map(|file| {
        let missed = file.section.verdicts.iter();
        let missed = missed.filter(|verdict| verdict.outcome == Outcome::Missed);
        missed.map(|verdict| {
            let Verdict { claim, measured, .. } = verdict;
            let paper = paper(verdict).unwrap_or_default();
            vec![link(file), claim.clone(), paper.to_owned(), measured.clone()]
        })
    });
    Table { header, rows: rows.collect(), left_columns: 4 }
}

fn link(file: &SectionFile) -> String {
    format!("[{}](#{})", file.section.id, file.section.id)
}

/// What the paper found, if it has the claim.
fn paper(verdict: &Verdict) -> Option<&str> {
    Some(verdict.paper.as_str()).filter(|paper| !["", "-"].contains(paper))
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reached => "reached",
        Outcome::Missed => "**missed**",
        Outcome::Shown => "shown",
    }
}

/// The median, and the quartiles if they are not close to it.
fn median_of(row: &Row) -> String {
    let is_close = |value: f64| (value - row.median).abs() <= 0.03 * row.median.abs();
    let median = shown(row.median);
    match is_close(row.low) && is_close(row.high) {
        true => median,
        false => format!("{median} ({} to {})", shown(row.low), shown(row.high)),
    }
}

fn section(file: &SectionFile, palette: &Palette) -> Result<Vec<Block>> {
    let section = &file.section;
    let mut blocks = vec![Block::heading(2, &section.title, &section.id)];
    blocks.extend(about(section));
    blocks.extend(results(section));
    for (index, plot) in section.plots.iter().enumerate() {
        if let Some(svg) = chart::draw(section, plot, palette)? {
            let name = format!("{}-{}.svg", section.id, index + 1);
            blocks.push(Block::Figure { name, svg, title: plot.title.clone() });
        }
    }
    blocks.extend(section.notes.iter().map(|note| Block::Paragraph(note.clone())));
    blocks.push(Block::Details { summary: "All numbers".into(), blocks: tables(section) });
    blocks.push(Block::Paragraph(how(file)));
    Ok(blocks)
}

fn about(section: &Section) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !section.paper.is_empty() {
        blocks.push(Block::Paragraph(format!("*{}: {}*", section.paper, section.figure)));
    }
    blocks.push(Block::Paragraph(section.about.clone()));
    let lines = [("The paper", &section.paper_claim), ("Wanted", &section.goal)];
    for (what, text) in lines.into_iter().filter(|(_, text)| !text.is_empty()) {
        blocks.push(Block::Paragraph(format!("**{what}:** {text}")));
    }
    if !section.sizes.is_empty() {
        let sizes: Vec<String> = section.sizes.iter().map(size).collect();
        blocks.push(Block::Paragraph(format!("**Size:** {}.", sizes.join("; "))));
    }
    blocks
}

/// How large the run was, beside the paper's and beside a full run.
fn size(size: &Size) -> String {
    let here = size.here;
    let of = |whose: &str, other: u64| match here {
        _ if here == other => format!(", as in {whose}"),
        _ if here < other => format!(", 1/{} of {whose}'s {}", times(other, here), whole(other)),
        _ => format!(", {} times {whose}'s {}", times(here, other), whole(other)),
    };
    let paper = size.paper.map(|paper| of("the paper", paper)).unwrap_or_default();
    let full = if here == size.full { String::new() } else { of("a full run", size.full) };
    format!("{}: {}{paper}{full}", size.what, whole(here))
}

fn times(large: u64, small: u64) -> String {
    let ratio = large as f64 / small as f64;
    let digits = if ratio < 10.0 { 10.0 } else { 1.0 };
    tick((ratio * digits).round() / digits)
}

fn results(section: &Section) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(error) = &section.error {
        blocks.push(Block::Paragraph(format!(
            "**This experiment failed:** {}",
            error.replace('\n', " ")
        )));
    }
    if !section.verdicts.is_empty() {
        blocks.push(Block::Items(section.verdicts.iter().map(verdict).collect()));
    }
    let left_out =
        |left: &crate::results::LeftOut| format!("{} is left out: {}.", left.what, left.why);
    if !section.left_out.is_empty() {
        blocks.push(Block::Items(section.left_out.iter().map(left_out).collect()));
    }
    blocks
}

fn verdict(verdict: &Verdict) -> String {
    let Verdict { claim, measured, sentence, .. } = verdict;
    let paper = paper(verdict).map(|paper| format!(" (paper: {paper})")).unwrap_or_default();
    let outcome = outcome(verdict.outcome);
    format!("{claim}: {measured}{paper}: {outcome}. {sentence}").trim_end().to_owned()
}

/// A line that says how the experiment was run.
fn how(file: &SectionFile) -> String {
    let section = &file.section;
    let settings = section.settings.iter().map(|(name, value)| format!("{name} {value}"));
    let settings: Vec<String> = settings.collect();
    let build = match file.build.revision.as_str() {
        "" => String::new(),
        revision => format!(", build {revision}"),
    };
    format!(
        "`onejournal-bench {}`, {}{}, {:.0} s; {}. {} of {} rounds were disturbed.{}",
        section.id,
        file.date,
        build,
        section.seconds,
        settings.join(", "),
        section.disturbances.len(),
        section.rounds,
        disturbances(&section.disturbances)
    )
}

/// A table for each metric and set of systems: panels and their cases down, systems across.
fn tables(section: &Section) -> Vec<Block> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in &section.rows {
        let head = (row.metric.as_str(), row.unit.as_str(), row.panel.as_str());
        match panels.iter_mut().find(|panel| panel.head == head) {
            Some(panel) => panel.rows.push(row),
            None => panels.push(Panel { head, rows: vec![row] }),
        }
    }
    let mut blocks = Vec::new();
    while let Some(first) = panels.first() {
        let (head, systems) = (first.head, first.systems());
        let is_like_first = |panel: &mut Panel<'_>| panel.is_of(head) && panel.systems() == systems;
        let alike: Vec<Panel<'_>> = panels.extract_if(.., is_like_first).collect();
        let (metric, unit, panel) = head;
        let names = alike.len() > 1;
        let place = if names { String::new() } else { format!("**{panel}**: ") };
        blocks.push(Block::Paragraph(format!("{place}{metric}, {unit}")));
        blocks.push(Block::Table(values(&alike, &systems)));
    }
    blocks
}

/// The rows of a panel and metric.
struct Panel<'a> {
    /// Metric, unit and name.
    head: (&'a str, &'a str, &'a str),
    rows: Vec<&'a Row>,
}

impl<'a> Panel<'a> {
    fn is_of(&self, (metric, unit, _): (&str, &str, &str)) -> bool {
        (self.head.0, self.head.1) == (metric, unit)
    }

    fn systems(&self) -> Vec<&'a str> {
        unique(self.rows.iter().map(|row| row.system.as_str()))
    }
}

/// Panels that have the same systems. If there are several, each begins with a line of its name.
fn values(panels: &[Panel<'_>], systems: &[&str]) -> Table {
    let mut header = vec![String::new(), String::new()];
    header.extend(systems.iter().map(|system| (*system).to_owned()));
    let mut table = Table { header, rows: Vec::new(), left_columns: 2 };
    for panel in panels {
        if panels.len() > 1 {
            table.rows.push(vec![format!("**{}**", panel.head.2)]);
        }
        let cases = unique(panel.rows.iter().map(|row| row.case.as_str()));
        table.rows.extend(cases.into_iter().flat_map(|case| case_of(&panel.rows, case, systems)));
    }
    table
}

/// The line of a case, and one for each of its counts.
fn case_of(rows: &[&Row], case: &str, systems: &[&str]) -> Vec<Vec<String>> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.case == case).collect();
    let line = |first: &str, second: &str, cell: &dyn Fn(&Row) -> String| {
        let of = |system: &&str| rows.iter().find(|row| row.system == *system);
        let cell = |system: &&str| of(system).map_or(String::new(), |row| cell(row));
        let cells = systems.iter().map(cell);
        [first.to_owned(), second.to_owned()].into_iter().chain(cells).collect()
    };
    let names = unique(rows.iter().flat_map(|row| row.counts.keys()).map(String::as_str));
    let count = |name: &str| {
        let count = |row: &Row| row.counts.get(name).map_or(String::new(), |count| shown(*count));
        line("", name, &count)
    };
    std::iter::once(line(case, "", &median_of)).chain(names.into_iter().map(count)).collect()
}

fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The least and the most of other work in the disturbed rounds. Empty without one.
fn disturbances(all: &[Disturbance]) -> String {
    let range = |of: fn(&Disturbance) -> f64| {
        let low = all.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = all.iter().map(of).fold(0.0, f64::max);
        format!("{low:.2} to {high:.2}")
    };
    if all.is_empty() {
        return String::new();
    }
    let (others, steal) = (range(|one| one.others_cpu), range(|one| one.steal));
    format!(" Other programs used {others} CPUs, and the hypervisor took {steal} of the time.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_compared_with_the_paper_and_with_a_full_run() {
        let of = |paper, full, here| Size { what: "rows".into(), paper, full, here };
        for (of, expected) in [
            (of(Some(10_000), 60, 60), "rows: 60, 1/167 of the paper's 10,000"),
            (
                of(Some(9000), 60, 9),
                "rows: 9, 1/1,000 of the paper's 9,000, 1/6.7 of a full run's 60",
            ),
            (of(Some(10), 10, 10), "rows: 10, as in the paper"),
            (of(Some(1), 200, 200), "rows: 200, 200 times the paper's 1"),
            (of(None, 400, 50), "rows: 50, 1/8 of a full run's 400"),
            (of(None, 400, 400), "rows: 400"),
        ] {
            assert_eq!(size(&of), expected);
        }
        let section = Section { sizes: vec![of(None, 2, 1)], ..Section::default() };
        let wanted = Block::Paragraph("**Size:** rows: 1, 1/2 of a full run's 2.".into());
        assert!(about(&section).contains(&wanted), "a quick run says by how much it is shortened");
    }
}
