//! A table of open things by path: the databases or the logs of this process.
//!
//! The table holds weak references, so it keeps nothing open. A forked process starts with an empty
//! table, because the things in its copy belong to the parent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use device::sync::Mutex;

/// The open things, by path. In a forked process the table is empty again, because its copies
/// belong to the parent.
pub struct Known<V>(Mutex<Option<Of<V>>>);

struct Of<V> {
    process: u32,
    open: HashMap<PathBuf, Weak<V>>,
}

impl<V> Known<V> {
    /// Nothing.
    pub const fn new() -> Known<V> {
        Known(Mutex::new(None))
    }

    /// Does something with it.
    pub fn with<T>(&self, f: impl FnOnce(&mut HashMap<PathBuf, Weak<V>>) -> T) -> T {
        let process = std::process::id();
        let mut of = self.0.lock();
        if of.as_ref().is_none_or(|of| of.process != process) {
            *of = Some(Of { process, open: HashMap::new() });
        }
        let open = &mut of.as_mut().expect("it is there now").open;
        open.retain(|_, one| one.strong_count() > 0);
        f(open)
    }

    /// The open thing at `path`.
    pub fn find(&self, path: &Path) -> Option<Arc<V>> {
        self.with(|open| open.get(path)?.upgrade())
    }

    /// All open things.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.with(|open| open.values().filter_map(Weak::upgrade).collect())
    }
}
