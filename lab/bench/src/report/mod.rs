//! The report of a directory of results: `README.md` with SVG files in `plots/`, and `report.html`,
//! one page that needs no other file. Both are made from the same [`document`]. The repository has
//! the Markdown and its figures, in `docs/results`.

mod axis;
mod chart;
mod document;
mod html;
mod markdown;
mod number;
mod palette;
mod place;
pub mod quoted;
mod sections;
mod summary;

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::results::SectionFile;
use document::{Block, PLOTS};
use palette::Palette;

/// Draws the report again.
pub fn write(dir: &Path, files: &[SectionFile]) -> Result<()> {
    let palette = Palette::of(files);
    let blocks = sections::report(files, &palette)?;
    let plots = dir.join(PLOTS);
    if plots.exists() {
        fs::remove_dir_all(&plots).map_err(Error::at(&plots))?;
    }
    fs::create_dir_all(&plots).map_err(Error::at(&plots))?;
    for block in &blocks {
        if let Block::Figure { name, svg, .. } = block {
            save(&plots.join(name), svg)?;
        }
    }
    save(&dir.join("README.md"), &markdown::render(&blocks))?;
    save(&dir.join("report.html"), &html::render(&blocks))
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::at(path))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    use super::*;
    use crate::experiments::{EXPERIMENTS, read_described};

    /// The largest file of raw results.
    const LARGEST: u64 = 400 << 10;

    fn stored() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
    }

    /// The names of the files in `dir`.
    fn names(dir: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
        let files = entries.filter(|entry| entry.path().is_file());
        files.map(|entry| entry.file_name().into_string().expect("a name")).collect()
    }

    /// Checks that `onejournal-bench report docs/results` was run after the last change of the
    /// results, of a description, or of the report's code.
    #[test]
    fn the_stored_report_is_drawn_from_the_stored_results() {
        let files = read_described(&stored()).expect("the stored results");
        assert!(!files.is_empty());
        let blocks = sections::report(&files, &Palette::of(&files)).expect("a report");
        const AGAIN: &str = "run: onejournal-bench report docs/results";
        let page = fs::read_to_string(stored().join("README.md")).expect("the stored report");
        assert!(page == markdown::render(&blocks), "{AGAIN}");
        let figures = blocks.iter().filter_map(|block| match block {
            Block::Figure { name, svg, .. } => Some((name.clone(), svg)),
            _ => None,
        });
        let figures: BTreeMap<_, _> = figures.collect();
        let plots = stored().join(PLOTS);
        assert_eq!(names(&plots), figures.keys().cloned().collect(), "{AGAIN}");
        for (name, svg) in figures {
            let found = fs::read_to_string(plots.join(&name)).expect("a figure");
            assert!(found == *svg, "{name}: {AGAIN}");
        }
    }

    /// The repository has packed results, and nothing else that can be made from them.
    #[test]
    fn stored_results_are_packed_and_belong_to_an_experiment() {
        let mut wanted: BTreeSet<String> =
            EXPERIMENTS.iter().map(|experiment| format!("{}.json.gz", experiment.id)).collect();
        wanted.insert("README.md".into());
        // Git ignores the page that `onejournal-bench report docs/results` writes, too.
        wanted.insert("report.html".into());
        for name in names(&stored()) {
            assert!(
                wanted.contains(&name),
                "{name}: pack results with gzip -9n docs/results/*.json"
            );
            let size = fs::metadata(stored().join(&name)).expect("a size").len();
            assert!(!name.ends_with(".gz") || size <= LARGEST, "{name}: {size} bytes");
        }
    }
}
