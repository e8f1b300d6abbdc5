//! Who may use a stream: changes the group and the permissions of a stream that no daemon serves.

use std::path::Path;

use host::{Folder, Trust};

use crate::directory::options::SETTINGS;
use crate::directory::served::refuse_if_served;
use crate::directory::service_directory::{META, meta_in};
use crate::directory::slots::{Lock, OPEN_LIMIT};
use crate::host::StreamMeta;
use crate::media::files::{at, within, write_whole};
use crate::{LogError, Result, StreamName};

/// Gives the stream `name` of the log in `path` to the group `gid`, with the permission bits
/// `mode`, durably. The next daemon goes by them. Processes that open the directory themselves do
/// not.
///
/// # Errors
/// [`LogError::InUse`] while a daemon serves the directory: it has read who may use the stream.
pub fn permit(path: &Path, name: &str, gid: u32, mode: u32) -> Result<()> {
    let name: StreamName = name.parse()?;
    let root = Folder::open(path, Trust::own()).map_err(at(path))?;
    if root.stat(SETTINGS).map_err(within(&root, SETTINGS))?.is_none() {
        return Err(LogError::Usage(format!("{} is no directory of a log", path.display())));
    }
    // A daemon takes the directory under this lock.
    let _lock = Lock::take(&root, OPEN_LIMIT)?;
    refuse_if_served(&root)?;
    let none = || LogError::NotFound(format!("there is no stream {name}"));
    let streams = root.folder("streams").map_err(within(&root, "streams"))?;
    let folder = match streams.folder(name.as_str()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(none()),
        opened => opened.map_err(within(&streams, name.as_str()))?,
    };
    let meta = StreamMeta { gid, mode, ..meta_in(&folder)?.ok_or_else(none)? };
    write_whole(&folder, META, &serde_json::to_vec_pretty(&meta).expect("plain data"))
}
