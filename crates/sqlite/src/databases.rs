//! The databases that are open in this process, by file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use host::FileId;

use crate::abi::loaded::loaded;
use crate::database::{self, Database};
use crate::failure::Failure;
use crate::known::Known;
use crate::stream::settings::Settings;

/// Device and inode of an open file: no other file has them while it is open.
type Key = (u64, u64);

/// The databases that are open in this process.
static DATABASES: Known<Key, Database> = Known::new();

fn key(file: &FileId) -> Key {
    (file.device, file.inode)
}

/// The databases that are open.
pub fn all() -> Vec<Arc<Database>> {
    DATABASES.all()
}

/// The open database that is this file.
pub fn find(file: &FileId) -> Option<Arc<Database>> {
    DATABASES.find(&key(file))
}

/// The open database whose file is at `path` now.
pub fn find_at(path: &Path) -> Option<Arc<Database>> {
    // Asking for the file is a request on some file systems.
    if !all().iter().any(|database| database.path == path) {
        return None;
    }
    let found = rustix::fs::stat(path).ok()?;
    let database = DATABASES.find(&(found.st_dev, found.st_ino))?;
    (database.path == path).then_some(database)
}

/// The database that is this file, at `path`. Counts one more user of it.
pub fn enter(path: PathBuf, file: FileId, settings: Settings) -> Result<Arc<Database>, Failure> {
    DATABASES.with(|databases| {
        let refuse = |how: String| {
            Err(Failure::CannotOpen(format!("{}: this process has it open {how}", path.display())))
        };
        let database = match databases.get(&key(&file)).and_then(Weak::upgrade) {
            // Each name has a WAL of its own, so what is remembered of one is not true of the
            // other.
            Some(database) if database.path != path => {
                return refuse(format!("as {}", database.path.display()));
            }
            Some(database) if database.settings.directory != settings.directory => {
                let directory = database.settings.directory.display();
                return refuse(format!("with its log in {directory}"));
            }
            Some(database) => database,
            None => {
                let database = Database::new(path, file, settings, loaded().below);
                let database = Arc::new(database);
                databases.insert(key(&file), Arc::downgrade(&database));
                database
            }
        };
        database::came(&database);
        Ok(database)
    })
}
