//! Operations on names: make, link, remove, rename.

use std::sync::Arc;

use ext4::{Error, FileKind, Result};

use super::{Body, Id, Model, Node};
use crate::op::RenameKind;
use crate::tree::Xattrs;

impl Model {
    pub(super) fn make(&mut self, path: &str, body: Body, mode: u16) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        if self.child(parent, name).is_some() {
            return Err(Error::Exists);
        }
        let is_dir = matches!(body, Body::Dir(_));
        let directory = &self.nodes[&parent];
        let inherits = directory.mode & 0o2000 != 0;
        let gid = if inherits { directory.gid } else { 0 };
        let node = Node {
            body,
            mode: mode | if inherits && is_dir { 0o2000 } else { 0 },
            uid: 0,
            gid,
            link_count: if is_dir { 2 } else { 1 },
            xattrs: Xattrs::new(),
        };
        let id = Id(self.next);
        self.next += 1;
        self.nodes.insert(id, Arc::new(node));
        self.children(parent).insert(name.into(), id);
        self.node(parent).link_count += u32::from(is_dir);
        self.note(id, true);
        self.note(parent, true);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Result<()> {
        let id = self.find(from)?;
        let (parent, name) = self.parent(to)?;
        if self.nodes[&id].kind() == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        if self.child(parent, name).is_some() {
            return Err(Error::Exists);
        }
        self.children(parent).insert(name.into(), id);
        self.node(id).link_count += 1;
        self.note(id, false);
        self.note(parent, true);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let id = self.child(parent, name).ok_or(Error::NotFound)?;
        if self.nodes[&id].kind() == FileKind::Directory {
            return Err(Error::IsDirectory);
        }
        self.children(parent).remove(name.as_bytes());
        self.note(parent, true);
        self.drop_link(id);
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let id = self.child(parent, name).ok_or(Error::NotFound)?;
        if !self.nodes[&id].children()?.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.children(parent).remove(name.as_bytes());
        self.drop_dir(id, parent);
        self.note(parent, true);
        Ok(())
    }

    /// Removes an empty directory's name from `parent`.
    fn drop_dir(&mut self, id: Id, parent: Id) {
        self.node(parent).link_count -= 1;
        self.node(id).link_count = 0;
        self.drop_if_unused(id);
    }

    fn drop_link(&mut self, id: Id) {
        self.node(id).link_count -= 1;
        self.note(id, false);
        self.drop_if_unused(id);
    }

    fn drop_if_unused(&mut self, id: Id) {
        let is_open = self.open.values().any(|open| *open == id);
        if !is_open && self.nodes[&id].link_count == 0 {
            self.nodes.remove(&id);
        }
    }

    pub(super) fn close(&mut self, slot: u32) {
        if let Some(id) = self.open.remove(&slot) {
            self.drop_if_unused(id);
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, kind: RenameKind) -> Result<()> {
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        let id = self.child(from_parent, from_name).ok_or(Error::NotFound)?;
        let old = self.child(to_parent, to_name);
        if old.is_some() && kind == RenameKind::NoReplace {
            return Err(Error::Exists);
        }
        if self.is_inside(to_parent, id) {
            return Err(Error::InvalidArgument);
        }
        if old == Some(id) {
            return Ok(()); // two names of one inode: nothing happens
        }
        if kind == RenameKind::Exchange {
            let old = old.ok_or(Error::NotFound)?;
            if self.is_inside(from_parent, old) {
                return Err(Error::InvalidArgument);
            }
            self.exchange((from_parent, from_name, id), (to_parent, to_name, old));
            return Ok(());
        }
        if let Some(old) = old {
            self.check_replace(id, old)?;
        }
        self.move_name((from_parent, from_name, id), (to_parent, to_name, old));
        Ok(())
    }

    /// Whether `id` is `ancestor` or is below it.
    fn is_inside(&self, id: Id, ancestor: Id) -> bool {
        let mut found = false;
        self.walk(ancestor, &mut Vec::new(), &mut |_, below| found |= below == id);
        found
    }

    fn check_replace(&self, id: Id, old: Id) -> Result<()> {
        let is_dir = self.nodes[&id].kind() == FileKind::Directory;
        match &self.nodes[&old].body {
            Body::Dir(_) if !is_dir => Err(Error::IsDirectory),
            Body::Dir(children) if !children.is_empty() => Err(Error::NotEmpty),
            Body::Dir(_) => Ok(()),
            _ if is_dir => Err(Error::NotDirectory),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, a: (Id, &str, Id), b: (Id, &str, Id)) {
        self.children(a.0).insert(a.1.into(), b.2);
        self.children(b.0).insert(b.1.into(), a.2);
        let is_dir = |model: &Model, id: Id| model.nodes[&id].kind() == FileKind::Directory;
        let (a_is_dir, b_is_dir) = (is_dir(self, a.2), is_dir(self, b.2));
        if a_is_dir != b_is_dir {
            let (gains, loses) = if a_is_dir { (b.0, a.0) } else { (a.0, b.0) };
            self.node(gains).link_count += 1;
            self.node(loses).link_count -= 1;
        }
        for id in [a.0, b.0] {
            self.note(id, true);
        }
        for id in [a.2, b.2] {
            self.note(id, false);
        }
    }

    fn move_name(&mut self, from: (Id, &str, Id), to: (Id, &str, Option<Id>)) {
        let id = from.2;
        self.children(from.0).remove(from.1.as_bytes());
        self.children(to.0).insert(to.1.into(), id);
        self.note(from.0, true);
        self.note(to.0, true);
        self.note(id, false);
        let is_dir = self.nodes[&id].kind() == FileKind::Directory;
        if is_dir {
            self.node(from.0).link_count -= 1;
            self.node(to.0).link_count += 1;
        }
        match to.2 {
            Some(old) if is_dir => self.drop_dir(old, to.0),
            Some(old) => self.drop_link(old),
            None => {}
        }
    }
}
