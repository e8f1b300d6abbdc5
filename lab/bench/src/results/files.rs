//! A directory of results: `ID.json` for each experiment, or `ID.json.gz`, packed with gzip.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::schema::{SCHEMA, SectionFile};
use crate::error::{Error, Result};

fn plain_path(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.json"))
}

fn packed_path(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.json.gz"))
}

/// Writes the results of one experiment as `ID.json`, atomically. They replace packed results.
pub fn write(dir: &Path, file: &SectionFile) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::at(dir))?;
    let path = plain_path(dir, &file.section.id);
    let mut text = serde_json::to_string_pretty(file).map_err(Error::json(&file.section.id))?;
    text.push('\n');
    let temporary = path.with_extension("json.new");
    fs::write(&temporary, text).map_err(Error::at(&temporary))?;
    fs::rename(&temporary, &path).map_err(Error::at(&path))?;
    let packed = packed_path(dir, &file.section.id);
    if packed.exists() {
        fs::remove_file(&packed).map_err(Error::at(&packed))?;
    }
    Ok(())
}

/// The results of `ids` that exist, in this order.
pub fn read_all<'a>(
    dir: &Path,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<SectionFile>> {
    ids.into_iter().filter_map(|id| read(dir, id).transpose()).collect()
}

/// The results of one experiment, packed or not. `None`: there are none.
pub fn read(dir: &Path, id: &str) -> Result<Option<SectionFile>> {
    let mut paths = [plain_path(dir, id), packed_path(dir, id)].into_iter();
    let Some(path) = paths.find(|path| path.exists()) else { return Ok(None) };
    let text = text(&path).map_err(Error::at(&path))?;
    let shown = path.display().to_string();
    let file: SectionFile = serde_json::from_str(&text).map_err(Error::json(&shown))?;
    if file.schema != SCHEMA {
        return Err(Error::other(format!("{shown}: schema {}, not {SCHEMA}", file.schema)));
    }
    Ok(Some(file))
}

fn text(path: &Path) -> std::io::Result<String> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
