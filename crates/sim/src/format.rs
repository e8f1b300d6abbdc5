//! Fresh volumes, made by mke2fs.

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use onejournal_testing::Image;

use crate::BLOCK_BYTES;

/// The variants of ext4 in which volumes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// What today's mke2fs makes.
    Usual,
    /// With an orphan file and a checksum seed of its own.
    Newest,
    /// Several small groups.
    Groups,
    /// Without checksums and without 64 bits.
    Plain,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 4] = [Shape::Usual, Shape::Newest, Shape::Groups, Shape::Plain];

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Shape::Usual => &[],
            Shape::Newest => &["-O", "orphan_file,metadata_csum_seed"],
            Shape::Groups => &["-g", "1024", "-G", "2"],
            Shape::Plain => &["-O", "^metadata_csum,^64bit"],
        }
    }
}

/// A formatted volume.
pub struct Formatted {
    /// Its bytes.
    pub image: Image,
    /// Blocks of its journal, without the first one, which e2fsck reads even if the journal is
    /// empty.
    pub journal_blocks: Vec<u64>,
    /// Byte ranges of the whole journal, in its own order.
    pub journal_extents: Vec<std::ops::Range<u64>>,
}

const SIZE_BYTES: u64 = 16 << 20;

/// The volume of this shape; made once.
pub fn formatted(shape: Shape) -> Result<Arc<Formatted>, String> {
    static MADE: OnceLock<Mutex<HashMap<Shape, Arc<Formatted>>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().map_err(|e| e.to_string())?;
    if let Some(formatted) = made.get(&shape) {
        return Ok(formatted.clone());
    }
    let formatted = Arc::new(format(shape)?);
    made.insert(shape, formatted.clone());
    Ok(formatted)
}

fn format(shape: Shape) -> Result<Formatted, String> {
    let file = tempfile::NamedTempFile::new().map_err(|e| format!("temporary file: {e}"))?;
    file.as_file().set_len(SIZE_BYTES).map_err(|e| format!("temporary file: {e}"))?;
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", "4096", "-I", "256", "-N", "1024", "-J", "size=4", "-m", "0"]);
    mkfs.args(["-U", "6f6e656a-6f75-726e-616c-000000000001"]);
    mkfs.args(["-E", "hash_seed=6f6e656a-6f75-726e-616c-000000000002,lazy_itable_init=0"]);
    mkfs.args(shape.arguments()).arg(file.path()).env("E2FSPROGS_FAKE_TIME", "1700000000");
    run(&mut mkfs)?;
    let mut debugfs = Command::new("debugfs");
    let listed = run(debugfs.args(["-R", "dump_extents -l <8>"]).arg(file.path()))?;
    let blocks: Vec<u64> = listed.lines().filter_map(extent_blocks).flatten().collect();
    if blocks.len() != 1024 {
        return Err(format!("debugfs lists {} blocks of the journal: {listed}", blocks.len()));
    }
    let bytes = std::fs::read(file.path()).map_err(|e| format!("temporary file: {e}"))?;
    let extents = blocks.iter().map(|b| b * BLOCK_BYTES..(b + 1) * BLOCK_BYTES).collect();
    let mut journal_blocks = blocks[1..].to_vec();
    journal_blocks.sort_unstable();
    Ok(Formatted { image: Image::from_bytes(&bytes), journal_blocks, journal_extents: extents })
}

/// The blocks of a line like ` 0/ 1   1/  4     0 -     9     9 -    18     10`; `None` for other
/// lines.
fn extent_blocks(line: &str) -> Option<std::ops::Range<u64>> {
    let numbers: Vec<u64> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    match numbers[..] {
        [_, _, _, _, _, _, first, last, _] => Some(first..last + 1),
        _ => None,
    }
}

/// Runs a tool of e2fsprogs and returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|e| format!("cannot run {name} ({e}); install e2fsprogs"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} failed ({}): {text}{errors}", output.status))
}
