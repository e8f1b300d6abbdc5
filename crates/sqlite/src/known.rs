//! A table of open things by a key: the databases of this process by their files, its logs by their
//! directories.
//!
//! The table holds weak references, so it keeps nothing open. A forked process starts with an empty
//! table, because the things in its copy belong to the parent.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use device::sync::Mutex;

/// The open things, by key. In a forked process the table is empty again, because its copies belong
/// to the parent.
pub struct Known<K, V>(Mutex<Option<Of<K, V>>>);

struct Of<K, V> {
    process: u32,
    open: HashMap<K, Weak<V>>,
}

impl<K: Eq + Hash, V> Known<K, V> {
    /// Nothing.
    pub const fn new() -> Known<K, V> {
        Known(Mutex::new(None))
    }

    /// Does something with it.
    pub fn with<T>(&self, f: impl FnOnce(&mut HashMap<K, Weak<V>>) -> T) -> T {
        let process = std::process::id();
        let mut of = self.0.lock();
        if of.as_ref().is_none_or(|of| of.process != process) {
            *of = Some(Of { process, open: HashMap::new() });
        }
        let open = &mut of.as_mut().expect("it is there now").open;
        open.retain(|_, one| one.strong_count() > 0);
        f(open)
    }

    /// The open thing of this key.
    pub fn find<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.with(|open| open.get(key)?.upgrade())
    }

    /// All open things.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.with(|open| open.values().filter_map(Weak::upgrade).collect())
    }
}
