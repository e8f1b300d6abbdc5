//! The report of a directory of results: `README.md` with SVG files in `plots/`, and `report.html`,
//! one page that needs no other file. Both are made from the same [`document`].

mod axis;
mod chart;
mod document;
mod html;
mod markdown;
mod number;
mod palette;
mod sections;
mod summary;

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::results::SectionFile;
use document::Block;
use palette::Palette;

const PLOTS: &str = "plots";

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
    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::results;

    /// Checks that `onejournal-bench report docs/results` was run after the last change of the
    /// results or of the report's code.
    #[test]
    fn the_stored_report_is_drawn_from_the_stored_results() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let ids = EXPERIMENTS.iter().map(|experiment| experiment.id);
        let files = results::read_all(&dir, ids).expect("the stored results");
        let blocks = sections::report(&files, &Palette::of(&files)).expect("a report");
        let stored = fs::read_to_string(dir.join("README.md")).expect("the stored report");
        assert!(stored == markdown::render(&blocks), "run: onejournal-bench report docs/results");
    }
}
