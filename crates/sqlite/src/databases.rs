//! The databases that are open in this process, by path.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::database::{self, Database};
use crate::failure::Failure;
use crate::known::Known;
use crate::real::loaded::loaded;
use crate::stream::settings::Settings;

/// The databases that are open in this process.
static DATABASES: Known<Database> = Known::new();

/// The databases that are open.
pub fn all() -> Vec<Arc<Database>> {
    DATABASES.all()
}

/// The open database at `path`.
pub fn find(path: &Path) -> Option<Arc<Database>> {
    DATABASES.find(path)
}

/// The database at `path`. Counts one more user of it.
pub fn enter(path: PathBuf, settings: Settings) -> Result<Arc<Database>, Failure> {
    DATABASES.with(|databases| {
        let database = match databases.get(&path).and_then(Weak::upgrade) {
            Some(database) if database.settings.directory == settings.directory => database,
            Some(database) => {
                return Err(Failure::CannotOpen(format!(
                    "{}: this process has it open with its log in {}",
                    path.display(),
                    database.settings.directory.display()
                )));
            }
            None => {
                let database = Arc::new(Database::new(path.clone(), settings, loaded().below));
                databases.insert(path, Arc::downgrade(&database));
                database
            }
        };
        database::came(&database);
        Ok(database)
    })
}
