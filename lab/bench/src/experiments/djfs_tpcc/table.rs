//! Table 1: flushes, and the parts of what the media get, of a transaction, as a part of ext4
//! ordered's in the same turns.
//!
//! The table's heading of the lines *JM* and *Data* is *Journal writes (%)*, and it does not say
//! what *Data* counts. Ordered mode journals no data of files, and has 100 % there. So *Data* may
//! be data wherever they were written, or all of the journal that is not *JM*, which in ordered
//! mode is metadata of the file system. Both are counted; the goal is on the first.

use super::Mode;
use crate::error::Result;
use crate::lab::Device;
use crate::measure::statistics::median;
use crate::measure::{Key, Metric, Samples};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{Ext4, OneJournal, System, WrittenParts};

const PART: Metric = Metric::lower("part of ext4 ordered's", "%");
const FLUSHES: &str = "flushes";
const METADATA: &str = "journal metadata";
const DATA: &str = "data, in the journal and home";
const JOURNAL_DATA: &str = "data, in the journal only";

/// What a transaction asks of the media.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    flushes: f64,
    /// Bytes of the journal's metadata, of data in the journal and home, and of data in the
    /// journal; `None` where they cannot be told apart.
    written: Option<[f64; 3]>,
}

impl Use {
    /// The mean of these transactions.
    pub fn each(transactions: u64, flushes: u64, written: Option<WrittenParts>) -> Use {
        let each = |count: u64| count as f64 / transactions.max(1) as f64;
        let all = |parts: WrittenParts| {
            [parts.metadata_bytes, parts.data_bytes, parts.journal_data_bytes].map(each)
        };
        Use { flushes: each(flushes), written: written.map(all) }
    }

    /// The table's lines.
    fn lines(self) -> Vec<(&'static str, f64)> {
        let written = self.written.into_iter().flatten();
        let written = [METADATA, DATA, JOURNAL_DATA].into_iter().zip(written);
        [(FLUSHES, self.flushes)].into_iter().chain(written).collect()
    }
}

pub fn panel(device: &Device, mode: &Mode) -> String {
    format!("Table 1, {device}: {}", mode.shown)
}

/// Notes a turn of a system, and the turn of ext4 ordered in the same round.
pub fn note(samples: &mut Samples, panel: &str, system: &str, used: Use, base: Use) {
    let base = base.lines();
    for (line, value) in used.lines() {
        let of_base = base.iter().find(|(name, _)| *name == line).map(|(_, value)| *value);
        if let Some(of_base) = of_base.filter(|value| *value > 0.0) {
            let key = Key::case(panel, line);
            samples.add(&key, system, PART, 100.0 * value / of_base);
            let name = if line == FLUSHES { "flushes a transaction" } else { "KiB a transaction" };
            let count = if line == FLUSHES { value } else { value / 1024.0 };
            samples.count_named(&key, system, PART, 1, &[(name, count)]);
        }
    }
}

pub fn plot(device: &Device) -> Plot {
    let panels = super::MODES.iter().map(|mode| panel(device, mode)).collect();
    Plot::bars(format!("Table 1 on {device}"), PART.name, panels).log_y()
}

/// The table's best column is DJFS with two regions. Its figures are judged with what DJFS does,
/// and ours against the same goal. The other reading of *Data* is only shown.
pub fn judge(section: &mut Section, samples: &Samples, device: &Device, mode: &Mode) -> Result<()> {
    let djfs = OneJournal::as_in_djfs(2).name();
    let ours = super::nvram().data("delta").option("regions=2").name();
    judge_one(section, samples, (device, mode), (&djfs, true))?;
    judge_one(section, samples, (device, mode), (&ours, false))
}

fn judge_one(
    section: &mut Section,
    samples: &Samples,
    (device, mode): (&Device, &Mode),
    (system, is_paper): (&str, bool),
) -> Result<()> {
    let others = [OneJournal::as_in_nvram_journaling().name(), Ext4::journal().name()];
    let of = |system: &str, line: &str| {
        let key = Key::case(panel(device, mode), line);
        samples.of(&key, system, PART).map(median)
    };
    let [flushes, metadata, data] = mode.paper_table;
    for (line, paper, is_goal) in [
        (FLUSHES, flushes, true),
        (METADATA, metadata, true),
        (DATA, data, true),
        (JOURNAL_DATA, data, false),
    ] {
        let Some(found) = of(system, line) else {
            // Only an emulated device tells the two parts of ext4's journal apart.
            section.leave_out(&format!("{}: {line}", panel(device, mode)), "not counted there");
            continue;
        };
        let claim = format!("{}: {line} of {system}, % of ext4 ordered's", panel(device, mode));
        let others: Vec<String> = others
            .iter()
            .filter_map(|system| Some(format!("{system}: {:.4}", of(system, line)?)))
            .collect();
        let of_paper = if is_paper { format!("{paper} %") } else { String::new() };
        let verdict = match is_goal {
            true => Verdict::at_most(claim, &of_paper, found, paper),
            false => Verdict::shown(claim, &of_paper, found),
        };
        section.verdicts.push(verdict.saying(format!("{} %.", others.join(" %; "))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parts_of_the_first_systems() {
        let parts = |metadata_bytes, data_bytes, journal_data_bytes| {
            Some(WrittenParts { metadata_bytes, data_bytes, journal_data_bytes })
        };
        let base = Use::each(2, 20, parts(400, 8000, 1000));
        let ours = Use::each(1, 1, parts(20, 1000, 200));
        let mut samples = Samples::default();
        note(&mut samples, "p", "ours", ours, base);
        note(&mut samples, "p", "blind", Use::each(1, 0, None), base);
        let of = |line, system| samples.of(&Key::case("p", line), system, PART).map(median);
        assert_eq!(
            [FLUSHES, METADATA, DATA, JOURNAL_DATA].map(|line| of(line, "ours").unwrap()),
            [10.0, 10.0, 25.0, 40.0]
        );
        assert_eq!((of(FLUSHES, "blind"), of(DATA, "blind")), (Some(0.0), None));
    }
}
