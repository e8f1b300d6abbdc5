//! The files of the repository, as they are in the working tree or as they were in a commit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::language::{Language, is_read, language};
use super::lexer::Rust;
use super::prose::{Paragraph, messages, paragraphs};

/// A file.
#[derive(Debug)]
pub struct File {
    /// From the root of the repository.
    pub path: String,
    pub byte_count: u64,
    /// Empty if it is [`Language::Data`].
    pub text: String,
    pub language: Language,
    rust: OnceLock<Rust>,
    paragraphs: OnceLock<Vec<Paragraph>>,
}

impl File {
    fn new(path: &str, byte_count: u64, text: String) -> File {
        let language = language(path, &text);
        let (rust, paragraphs) = (OnceLock::new(), OnceLock::new());
        File { path: path.to_owned(), byte_count, text, language, rust, paragraphs }
    }

    /// Its tokens; of a file in another language than Rust, none.
    pub fn rust(&self) -> &Rust {
        let text = if self.language == Language::Rust { &self.text } else { "" };
        self.rust.get_or_init(|| Rust::new(text))
    }

    /// The paragraphs of its comments, or of its prose.
    pub fn paragraphs(&self) -> &[Paragraph] {
        self.paragraphs.get_or_init(|| paragraphs(self.language, self.rust(), &self.text))
    }

    /// What it says to users; tests say nothing.
    pub fn messages(&self) -> Vec<Paragraph> {
        if self.is_test() { Vec::new() } else { messages(self.rust(), &self.text) }
    }

    /// The folder that its findings are counted for: a crate, or a folder of the repository.
    pub fn place(&self) -> &str {
        let depth =
            if self.path.starts_with("crates/") || self.path.starts_with("lab/") { 2 } else { 1 };
        match self.path.match_indices('/').nth(depth - 1) {
            Some((at, _)) => &self.path[..at],
            None => self.path.rsplit_once('/').map_or("root", |(folder, _)| folder),
        }
    }

    /// Whether all of it is a test, an example or a benchmark, by its path.
    pub fn is_test(&self) -> bool {
        let mut folders = self.path.split('/');
        let name = folders.next_back().unwrap_or_default().trim_end_matches(".rs");
        folders.any(|folder| ["tests", "examples", "benches"].contains(&folder))
            || name == "tests"
            || name.ends_with("_test")
            || name.ends_with("_tests")
            || name.starts_with("test_")
    }
}

/// All files, by path.
#[derive(Debug)]
pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// A tree of these paths and texts, for canaries.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let file =
            |(path, text): &(&str, &str)| File::new(path, text.len() as u64, (*text).to_owned());
        Tree { files: files.iter().map(file).collect() }
    }

    /// The files below `root` that git knows, or all but `target` and `.git` if there is no git.
    pub fn read(root: &Path) -> Tree {
        let listed = git(root, &["ls-files", "-z"]).filter(|list| !list.is_empty());
        let listed = listed.map(|list| split(&list));
        let mut paths = listed.unwrap_or_else(|| walk(root));
        paths.sort();
        paths.dedup();
        let read = |path: String| {
            let place = root.join(&path);
            let about = fs::symlink_metadata(&place).ok().filter(fs::Metadata::is_file)?;
            let bytes = if is_read(&path) { fs::read(&place).ok()? } else { Vec::new() };
            let text = String::from_utf8(bytes).unwrap_or_default();
            Some(File::new(&path, about.len(), text))
        };
        Tree { files: paths.into_iter().filter_map(read).collect() }
    }

    /// The tree before the changes that are under way: that of HEAD or, if nothing differs from it,
    /// of its first parent. `None` if git cannot tell.
    pub fn before(&self, root: &Path) -> Option<Tree> {
        let changes =
            |commit| Some(Changes::new(&git(root, &["diff", "--name-status", "-z", commit])?));
        let mut commit = "HEAD";
        let mut changes_since = changes(commit)?;
        if changes_since.old_paths.is_empty() {
            commit = "HEAD~1";
            changes_since = changes(commit)?;
        }
        let unchanged = |file: &&File| !changes_since.old_paths.contains_key(&file.path);
        let same = |file: &File| File::new(&file.path, file.byte_count, file.text.clone());
        let mut files: Vec<File> = self.files.iter().filter(unchanged).map(same).collect();
        for (path, old_path) in &changes_since.old_paths {
            let old_path = old_path.as_ref().unwrap_or(path);
            let old = git(root, &["cat-file", "blob", &format!("{commit}:{old_path}")]);
            if let Some(text) = old.filter(|_| is_read(path)) {
                files.push(File::new(path, text.len() as u64, text));
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Some(Tree { files })
    }
}

/// What `git diff --name-status -z` says.
struct Changes {
    /// The path of each changed file, and the one that it had before if it was renamed.
    old_paths: BTreeMap<String, Option<String>>,
}

impl Changes {
    fn new(list: &str) -> Changes {
        let mut fields = split(list).into_iter();
        let mut old_paths = BTreeMap::new();
        while let (Some(status), Some(path)) = (fields.next(), fields.next()) {
            if status.starts_with('R') || status.starts_with('C') {
                old_paths.insert(fields.next().unwrap_or_default(), Some(path));
            } else {
                old_paths.insert(path, None);
            }
        }
        Changes { old_paths }
    }
}

fn split(list: &str) -> Vec<String> {
    list.split_terminator('\0').map(str::to_owned).collect()
}

/// What git prints; `None` if it cannot be run, or fails. It may run as another user than the one
/// who cloned the repository.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(["-c", "safe.directory=*"]).args(words);
    let ran = command.output().ok().filter(|ran| ran.status.success())?;
    String::from_utf8(ran.stdout).ok()
}

fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && entry.file_name() != "target" && entry.file_name() != ".git" {
                folders.push(path);
            } else if let (false, Ok(path)) = (is_folder, path.strip_prefix(root)) {
                found.extend(path.to_str().map(str::to_owned));
            }
        }
    }
    found
}

/// The root of the repository: the folder above this crate, or above the current one, whose
/// `Cargo.toml` has the workspace of the product.
pub fn root() -> PathBuf {
    let from = option_env!("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let from = from.or_else(|| std::env::current_dir().ok()).expect("a folder");
    let is_root = |folder: &&Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        manifest.contains("[workspace]") && folder.join("crates").is_dir()
    };
    from.ancestors().find(is_root).expect("a Cargo.toml with [workspace] above").to_owned()
}

#[test]
fn places_are_crates_and_folders() {
    let place = |path| File::new(path, 0, String::new()).place().to_owned();
    assert_eq!(place("crates/ext4/src/lib.rs"), "crates/ext4");
    assert_eq!(place("lab/bench/Cargo.toml"), "lab/bench");
    assert_eq!(place("lab/Cargo.toml"), "lab");
    assert_eq!(place("docs/format/log.md"), "docs");
    assert_eq!(place("README.md"), "root");
}

#[test]
fn renamed_files_keep_their_old_path() {
    let changes = Changes::new("M\0a.rs\0R090\0old.rs\0new.rs\0D\0gone.rs\0");
    let renamed = Some("old.rs".to_owned());
    let expected = [("a.rs", None), ("gone.rs", None), ("new.rs", renamed)];
    assert_eq!(changes.old_paths, expected.map(|(path, old)| (path.to_owned(), old)).into());
}

#[test]
fn files_of_tests_are_known_by_their_path() {
    let is_test = |path| File::new(path, 0, String::new()).is_test();
    assert!(is_test("crates/a/tests/it/b.rs") && is_test("tests/posix.rs"));
    assert!(is_test("crates/a/src/disk/tests.rs") && is_test("crates/a/src/model_test.rs"));
    assert!(!is_test("crates/testing/src/lib.rs") && !is_test("crates/a/src/latest.rs"));
}
