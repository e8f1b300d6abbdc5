//! The modules of a crate, and which of them uses which.
//!
//! A use is an import or a path in the code. A name that a module exports again counts as a use of
//! the module that defines it. So `mod.rs` may export what its files define, and is in no circle
//! with them. Code that is compiled for tests only is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::lexer::Kind;
use super::tree::{File, Tree};

/// A module: a file, or a part of one in braces.
#[derive(Debug)]
pub struct Module<'t> {
    pub name: &'t str,
    pub file: &'t File,
    pub parent: Option<usize>,
    pub is_test: bool,
    children: BTreeMap<&'t str, usize>,
    defined: BTreeSet<&'t str>,
    imports: Vec<Import<'t>>,
    paths: Vec<Path<'t>>,
}

/// One name of a `use`.
#[derive(Debug, Clone)]
struct Import<'t> {
    path: Path<'t>,
    /// The name that it has here; `None`: all names (`*`).
    name: Option<&'t str>,
    is_export: bool,
}

#[derive(Debug, Clone)]
struct Path<'t> {
    segments: Vec<&'t str>,
    line: usize,
    is_test: bool,
}

/// One module uses another one.
#[derive(Debug)]
pub struct Use<'t> {
    pub from: usize,
    pub to: usize,
    pub line: usize,
    /// The path as it is written.
    pub path: Vec<&'t str>,
    /// Whether the name was found among the exports of the crate's root.
    pub is_through_root: bool,
}

/// A crate of the workspace, with the modules of its library (or of its program, if it has no
/// library).
#[derive(Debug)]
pub struct Crate<'t> {
    /// Its folder.
    pub place: &'t str,
    /// The first one is the root.
    pub modules: Vec<Module<'t>>,
    pub uses: Vec<Use<'t>>,
}

/// All crates that have a folder `src`.
pub fn crates(tree: &Tree) -> Vec<Crate<'_>> {
    let files: BTreeMap<&str, &File> = tree.files.iter().map(|file| (&*file.path, file)).collect();
    let root = |file: &&File| {
        let folder = file.path.strip_suffix("/src/main.rs");
        let is_lone = |folder: &str| !files.contains_key(&*format!("{folder}/src/lib.rs"));
        file.path.ends_with("/src/lib.rs") || folder.is_some_and(is_lone)
    };
    tree.files.iter().filter(root).map(|file| Crate::new(file, &files)).collect()
}

impl<'t> Crate<'t> {
    fn new(root: &'t File, files: &BTreeMap<&str, &'t File>) -> Crate<'t> {
        let mut found = Crate { place: root.place(), modules: Vec::new(), uses: Vec::new() };
        let all = 0..root.rust().code.len();
        found.add(Place { name: "", file: root, parent: None, is_test: false }, all, files);
        found.uses = found.find_uses();
        found
    }

    /// The module of the crate's root that this one is in; `None`: it is the root.
    pub fn top(&self, mut module: usize) -> Option<&'t str> {
        let mut name = None;
        while let Some(parent) = self.modules[module].parent {
            name = Some(self.modules[module].name);
            module = parent;
        }
        name
    }

    /// The names of the root's modules.
    pub fn tops(&self) -> impl Iterator<Item = &'t str> {
        let children = self.modules[0].children.iter();
        children.filter(|(_, module)| !self.modules[**module].is_test).map(|(name, _)| *name)
    }

    fn add(
        &mut self,
        place: Place<'t>,
        tokens: Range<usize>,
        files: &BTreeMap<&str, &'t File>,
    ) -> usize {
        let scan = Scan::new(place.file, tokens);
        let module = self.modules.len();
        self.modules.push(Module {
            name: place.name,
            file: place.file,
            parent: place.parent,
            is_test: place.is_test,
            children: BTreeMap::new(),
            defined: scan.defined,
            imports: scan.imports,
            paths: scan.paths,
        });
        for declared in scan.modules {
            let is_test = place.is_test || declared.is_test;
            let inside = declared.inside.clone().map(|tokens| (place.file, tokens));
            let found = inside.or_else(|| {
                let file = self.file_of(module, declared.name, files)?;
                Some((file, 0..file.rust().code.len()))
            });
            let Some((file, tokens)) = found else { continue };
            let is_test = is_test || (declared.inside.is_none() && file.is_test());
            let place = Place { name: declared.name, file, parent: Some(module), is_test };
            let child = self.add(place, tokens, files);
            self.modules[module].children.insert(declared.name, child);
        }
        module
    }

    /// The file of the child that `module` declares by `mod name;`.
    fn file_of(
        &self,
        module: usize,
        name: &str,
        files: &BTreeMap<&str, &'t File>,
    ) -> Option<&'t File> {
        let (folder, file) = self.modules[module].file.path.rsplit_once('/')?;
        let is_folder = ["mod.rs", "lib.rs", "main.rs"].contains(&file);
        let inner = if is_folder { "" } else { file.strip_suffix(".rs")? };
        let folder = if is_folder { folder.to_owned() } else { format!("{folder}/{inner}") };
        let file = files.get(&*format!("{folder}/{name}.rs"));
        file.or_else(|| files.get(&*format!("{folder}/{name}/mod.rs"))).copied()
    }

    fn find_uses(&self) -> Vec<Use<'t>> {
        let mut uses = Vec::new();
        for (from, module) in self.modules.iter().enumerate().filter(|(_, module)| !module.is_test)
        {
            let exports = module.imports.iter().map(|import| (&import.path, import.is_export));
            let paths = module.paths.iter().map(|path| (path, false));
            for (path, is_export) in exports.chain(paths).filter(|(path, _)| !path.is_test) {
                let Some(found) = self.resolve(from, &path.segments, 0) else { continue };
                let is_own = is_export && self.is_below(found.module, from);
                let is_same = module.file.path == self.modules[found.module].file.path;
                if self.modules[found.module].is_test
                    || is_own
                    || (is_same && !found.is_through_root)
                {
                    continue;
                }
                let is_from_above = ["crate", "super"].contains(&path.segments[0]);
                let is_through_root = found.is_through_root && is_from_above && from != 0;
                let (to, line) = (found.module, path.line);
                uses.push(Use { from, to, line, path: path.segments.clone(), is_through_root });
            }
        }
        uses
    }

    fn is_below(&self, mut module: usize, above: usize) -> bool {
        while let Some(parent) = self.modules[module].parent {
            if parent == above {
                return true;
            }
            module = parent;
        }
        false
    }

    /// The module that a path leads to, or that defines what it names. `None`: another crate.
    fn resolve(&self, from: usize, segments: &[&str], depth: usize) -> Option<Found> {
        let (first, mut rest) = segments.split_first()?;
        let mut found = match *first {
            "crate" => Found { module: 0, is_item: false, is_through_root: false },
            "self" => Found { module: from, is_item: false, is_through_root: false },
            "super" => {
                let module = self.modules[from].parent?;
                Found { module, is_item: false, is_through_root: false }
            }
            name => self.named(from, name, depth)?,
        };
        while let Some((segment, after)) = rest.split_first().filter(|_| !found.is_item) {
            rest = after;
            if *segment == "super" {
                found.module = self.modules[found.module].parent?;
                continue;
            }
            let is_root = found.module == 0;
            // A name that is not found is made by a macro, or is one of another crate.
            let unknown = Found { is_item: true, ..found };
            let is_known = self.knows(found.module, segment);
            let next = self.named(found.module, segment, depth);
            if next.is_none() && is_known {
                return None;
            }
            let next = next.unwrap_or(unknown);
            let is_export = is_root && is_known && next.module != 0;
            let is_child = self.modules[found.module].children.contains_key(segment);
            let is_through_root = found.is_through_root || (is_export && !is_child);
            found = Found { is_through_root, ..next };
        }
        Some(found)
    }

    /// Whether `module` declares, defines or imports this name.
    fn knows(&self, module: usize, name: &str) -> bool {
        let module = &self.modules[module];
        module.children.contains_key(name)
            || module.defined.contains(name)
            || module.imports.iter().any(|import| import.name == Some(name))
    }

    /// What `name` is in `module`. `None`: unknown there, or of another crate.
    fn named(&self, module: usize, name: &str, depth: usize) -> Option<Found> {
        const DEPTH_MAX: usize = 16;
        let place = &self.modules[module];
        if let Some(child) = place.children.get(name) {
            return Some(Found { module: *child, is_item: false, is_through_root: false });
        }
        if place.defined.contains(name) {
            return Some(Found { module, is_item: true, is_through_root: false });
        }
        if depth == DEPTH_MAX {
            return None;
        }
        let by_name = place.imports.iter().find(|import| import.name == Some(name));
        if let Some(import) = by_name {
            return self.resolve(module, &import.path.segments, depth + 1);
        }
        place.imports.iter().filter(|import| import.name.is_none()).find_map(|import| {
            let all = self.resolve(module, &import.path.segments, depth + 1)?;
            let is_known = !all.is_item && all.module != module;
            is_known.then(|| self.named(all.module, name, depth + 1)).flatten()
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Found {
    module: usize,
    is_item: bool,
    is_through_root: bool,
}

struct Place<'t> {
    name: &'t str,
    file: &'t File,
    parent: Option<usize>,
    is_test: bool,
}

struct Declared<'t> {
    name: &'t str,
    /// Its tokens, if it is in braces.
    inside: Option<Range<usize>>,
    is_test: bool,
}

/// What is in the tokens of one module.
struct Scan<'t> {
    file: &'t File,
    defined: BTreeSet<&'t str>,
    imports: Vec<Import<'t>>,
    paths: Vec<Path<'t>>,
    modules: Vec<Declared<'t>>,
}

impl<'t> Scan<'t> {
    fn new(file: &'t File, tokens: Range<usize>) -> Scan<'t> {
        let (defined, imports) = (BTreeSet::new(), Vec::new());
        let mut scan = Scan { file, defined, imports, paths: Vec::new(), modules: Vec::new() };
        let (mut index, mut depth) = (tokens.start, 0);
        while index < tokens.end {
            match file.rust().code[index].kind {
                Kind::Mark(b'{') => depth += 1,
                Kind::Mark(b'}') => depth -= 1,
                Kind::Word => {
                    index = scan.word(index, depth);
                    continue;
                }
                _ => {}
            }
            index += 1;
        }
        scan
    }

    fn text(&self, index: usize) -> &'t str {
        self.file.rust().text(&self.file.text, index)
    }

    fn is_mark(&self, index: usize, mark: u8) -> bool {
        self.file.rust().is_mark(index, mark)
    }

    fn is_path_mark(&self, index: usize) -> bool {
        self.is_mark(index, b':') && self.is_mark(index + 1, b':')
    }

    fn is_word(&self, index: usize) -> bool {
        self.file.rust().code.get(index).is_some_and(|token| token.kind == Kind::Word)
    }

    fn path(&self, segments: Vec<&'t str>, index: usize) -> Path<'t> {
        let token = &self.file.rust().code[index];
        Path { segments, line: token.line, is_test: self.file.rust().is_test(token.start) }
    }

    /// Takes the word at `index` and what belongs to it; returns the index after that.
    fn word(&mut self, index: usize, depth: usize) -> usize {
        match self.text(index) {
            "use" if !self.is_mark(index + 1, b'<') => {
                let is_export =
                    index > 0 && (self.text(index - 1) == "pub" || self.is_mark(index - 1, b')'));
                return self.import(index + 1, &[], is_export);
            }
            "mod" if depth == 0 && self.is_word(index + 1) => return self.module(index),
            "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "fn"
                if depth == 0 && self.is_word(index + 1) =>
            {
                self.defined.insert(self.text(index + 1));
            }
            "macro_rules" if self.is_word(index + 2) => {
                self.defined.insert(self.text(index + 2));
            }
            _ => {}
        }
        let is_first = index < 2 || !self.is_path_mark(index - 2);
        let mut segments = vec![self.text(index)];
        let mut after = index + 1;
        while self.is_path_mark(after) && self.is_word(after + 2) {
            segments.push(self.text(after + 2));
            after += 3;
        }
        if is_first && segments.len() > 1 {
            self.paths.push(self.path(segments, index));
            return after;
        }
        index + 1
    }

    fn module(&mut self, index: usize) -> usize {
        let name = self.text(index + 1);
        let is_test = self.file.rust().is_test(self.file.rust().code[index].start);
        let open = index + 2;
        let is_inside = self.is_mark(open, b'{');
        let end = if is_inside { self.file.rust().closing(open) } else { open };
        let inside = is_inside.then_some(open + 1..end);
        self.modules.push(Declared { name, inside, is_test });
        end + 1
    }

    /// Takes a tree of imports; returns the index after it.
    fn import(&mut self, mut index: usize, above: &[&'t str], is_export: bool) -> usize {
        let mut segments = above.to_vec();
        loop {
            if self.is_path_mark(index) {
                index += 2;
            } else if self.is_mark(index, b'*') {
                let path = self.path(segments, index);
                self.imports.push(Import { path, name: None, is_export });
                return index + 1;
            } else if self.is_mark(index, b'{') {
                let end = self.file.rust().closing(index);
                index += 1;
                while index < end {
                    index = self.import(index, &segments, is_export);
                    index += usize::from(self.is_mark(index, b','));
                }
                return end + 1;
            } else if self.is_word(index) && self.text(index) != "as" {
                segments.push(self.text(index));
                index += 1;
                if !self.is_path_mark(index) {
                    return self.import_one(index, segments, is_export);
                }
            } else {
                return index + 1;
            }
        }
    }

    fn import_one(
        &mut self,
        mut index: usize,
        mut segments: Vec<&'t str>,
        is_export: bool,
    ) -> usize {
        if segments.len() > 1 && segments.last() == Some(&"self") {
            segments.pop();
        }
        let mut name = segments.last().copied();
        if self.text(index) == "as" {
            name = Some(self.text(index + 1));
            index += 2;
        }
        let path = self.path(segments, index - 1);
        self.imports.push(Import { path, name, is_export });
        index
    }
}

/// Who uses whom, as `file -> file`.
#[cfg(test)]
fn uses(files: &[(&str, &str)]) -> BTreeSet<String> {
    let tree = Tree::of(files);
    let found = crates(&tree);
    let name = |module: &Module<'_>| module.file.path.replace("crates/a/src/", "");
    let uses = |one: &Crate<'_>| -> Vec<String> {
        let names = |edge: &Use<'_>| {
            format!("{} -> {}", name(&one.modules[edge.from]), name(&one.modules[edge.to]))
        };
        one.uses.iter().map(names).collect()
    };
    found.iter().flat_map(uses).collect()
}

#[test]
fn all_kinds_of_imports_and_paths_are_uses() {
    let uses_of = |code: &str| {
        uses(&[
            ("crates/a/src/lib.rs", "mod b;\nmod c;\nmod e;\npub use c::C;"),
            ("crates/a/src/b.rs", code),
            ("crates/a/src/c/mod.rs", "mod d;\npub use d::*;\npub struct C;"),
            ("crates/a/src/c/d.rs", "pub struct D;\nimpl D { fn new() {} }"),
            ("crates/a/src/e.rs", "pub fn e() {}\npub mod inner { pub const E: u8 = 0; }"),
        ])
    };
    let to = |names: &[&str]| names.iter().map(|name| format!("b.rs -> {name}")).collect();
    assert_eq!(uses_of("use crate::{c::{self, C}, e::inner::E};"), to(&["c/mod.rs", "e.rs"]));
    assert_eq!(uses_of("use crate::c::D as Other;"), to(&["c/d.rs"]));
    assert_eq!(uses_of("use super::c;\nfn f() { c::D::new() }"), to(&["c/d.rs", "c/mod.rs"]));
    assert_eq!(uses_of("use crate::e;"), to(&["e.rs"]));
    assert_eq!(uses_of("fn f() { crate::e::e() }"), to(&["e.rs"]));
    assert_eq!(uses_of("mod g { use super::super::e::e; }"), to(&["e.rs"]));
    assert_eq!(uses_of("fn f() { use crate::e::inner; }"), to(&["e.rs"]));
    assert_eq!(uses_of("use std::c;\nuse other::e::e;\nfn f() { other::c::g() }"), to(&[]));
    assert_eq!(uses_of("#[cfg(test)]\nmod tests { use crate::e; }\n// crate::c\n"), to(&[]));
}
