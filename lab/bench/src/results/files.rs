//! A directory of results: `ID.json` for each experiment.

use std::fs;
use std::path::{Path, PathBuf};

use super::schema::{SCHEMA, SectionFile};
use crate::error::{Error, Result};

/// Where the results of an experiment are.
pub fn section_path(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.json"))
}

/// Writes one file, atomically.
pub fn write(dir: &Path, file: &SectionFile) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::at(dir))?;
    let path = section_path(dir, &file.section.id);
    let mut text = serde_json::to_string_pretty(file).map_err(Error::json(&file.section.id))?;
    text.push('\n');
    let temporary = path.with_extension("json.new");
    fs::write(&temporary, text).map_err(Error::at(&temporary))?;
    fs::rename(&temporary, &path).map_err(Error::at(&path))
}

/// The results of `ids` that exist, in this order.
pub fn read_all<'a>(
    dir: &Path,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<SectionFile>> {
    let mut files = Vec::new();
    for path in ids.into_iter().map(|id| section_path(dir, id)) {
        if path.exists() {
            files.push(read(&path)?);
        }
    }
    Ok(files)
}

/// Reads one.
pub fn read(path: &Path) -> Result<SectionFile> {
    let text = fs::read_to_string(path).map_err(Error::at(path))?;
    let shown = path.display().to_string();
    let file: SectionFile = serde_json::from_str(&text).map_err(Error::json(&shown))?;
    if file.schema != SCHEMA {
        return Err(Error::other(format!("{shown}: schema {}, not {SCHEMA}", file.schema)));
    }
    Ok(file)
}
