//! The documents: every link and anchor leads somewhere, the book names every page, and every
//! command of the README, the tutorials, the how-to pages and the pages on databases runs.
//!
//! A fenced block of a language of [`PROGRAMS`] belongs to one of these, by the comment in the line
//! before its fence:
//!
//! - no comment, and `sh`: it is run. The blocks of a page run in order, in one shell, as root, in
//!   an empty directory; commands in a comment that begins with `<!-- setup` run, too, and readers
//!   do not see them;
//! - a `text` block right after one that is run is the end of what it prints;
//! - `<!-- file: NAME -->`: it is saved as NAME there;
//! - `<!-- same as: PATH -->`: it equals the file PATH of the sources, which other tests compile;
//! - `<!-- not run: REASON -->`: it is not run; [`blocks_that_are_not_run_say_why`] lists them;
//! - `<!-- needs: PROGRAM ... -->` before the first block, or before one of them: the page, or the
//!   block, is left out where a program is missing; `python3:NAME`, `node:NAME` and so on are
//!   modules ([`has_module`]), and a path that begins with `/` is a file.
//!
//! With `ONEJOURNAL_PAGES=databases/redis` in the environment,
//! `cargo test -p onejournal-cli --test it docs::every_command -- --nocapture` runs only pages
//! whose path contains this word.

use crate::support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use onejournal_testing::{
    find_python_with_extensions, has_module, has_namespaces, has_program, module_paths,
    python_with_extensions,
};
use support::{LET_GO, ONEJOURNAL, alone, can_mount, run, scratch_dir};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All Markdown files below `docs`, and the README.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    let mut dirs = vec![root().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A page by its path in the repository.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The lines of a page that are not in a fenced block.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    outside.collect()
}

/// Drops what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Targets of links and pictures.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        for part in line.split("](").skip(1) {
            found.extend(part.split(')').next().map(str::to_owned));
        }
    }
    found
}

/// What a heading is called in a link, on GitHub and in the book.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text) {
        if let Some(id) = line.strip_prefix("<a id=\"") {
            found.extend(id.split('"').next().map(str::to_owned));
        } else if line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#')));
        }
    }
    found
}

/// What is wrong with the links of a page.
fn dead_links(page: &Path, text: &str) -> Vec<String> {
    let is_elsewhere = |link: &String| link.starts_with("http://") || link.starts_with("https://");
    let mut dead = Vec::new();
    for link in links(text).into_iter().filter(|link| !is_elsewhere(link)) {
        let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
        let target = match path {
            "" => page.to_owned(),
            path => page.parent().unwrap().join(path),
        };
        let Ok(target) = target.canonicalize() else {
            dead.push(format!("{}: {link}: there is no such file", name(page)));
            continue;
        };
        let is_page = target.extension().is_some_and(|extension| extension == "md");
        if !fragment.is_empty() && is_page {
            let there =
                if path.is_empty() { text.to_owned() } else { fs::read_to_string(target).unwrap() };
            if !anchors(&there).contains(fragment) {
                dead.push(format!("{}: {link}: there is no such heading", name(page)));
            }
        }
    }
    dead
}

#[test]
fn every_link_leads_somewhere() {
    let dead: Vec<String> = pages()
        .iter()
        .flat_map(|page| dead_links(page, &fs::read_to_string(page).unwrap()))
        .collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn a_dead_link_is_found() {
    let page = root().join("docs/SUMMARY.md");
    let text = "# A `b` c\n[good](#a-b-c) [bad](#nothing)\n[gone](gone.md) `[code](code.md)`\n\
                [x](known-defects.md#none)\n";
    assert_eq!(dead_links(&page, text).len(), 3, "{:?}", dead_links(&page, text));
}

/// Pages of the book name only files of the book: a link out of `docs` would be dead there.
#[test]
fn the_book_links_to_itself_only() {
    let docs = root().join("docs");
    for page in pages().iter().filter(|page| page.starts_with(&docs)) {
        for link in links(&fs::read_to_string(page).unwrap()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let target = page.parent().unwrap().join(path).canonicalize();
            assert!(target.is_ok_and(|path| path.starts_with(&docs)), "{}: {link}", name(page));
        }
    }
}

#[test]
fn the_book_names_every_page() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let named: BTreeSet<PathBuf> =
        links(&summary).iter().map(|link| docs.join(link).canonicalize().unwrap()).collect();
    let all: BTreeSet<PathBuf> = pages()
        .into_iter()
        .filter(|page| page.starts_with(&docs) && !page.ends_with("SUMMARY.md"))
        .collect();
    let missing: Vec<_> = all.difference(&named).map(|page| name(page)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

/// The crates that the product is built of.
const PRODUCT: [&str; 13] = [
    "capi",
    "cli",
    "device",
    "ext4",
    "fault",
    "fuse",
    "host",
    "journal",
    "log",
    "mount",
    "probe",
    "sqlite",
    "volume-client",
];

/// The names in `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| !name.is_empty() && *name != "#").map(str::to_owned).collect()
}

#[test]
fn libraries_of_the_product_are_explained() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let manifests = PRODUCT.map(|name| read(&format!("crates/{name}/Cargo.toml")));
    let all: BTreeSet<String> =
        manifests.iter().flat_map(|manifest| dependencies(manifest)).collect();
    let is_ours = |name: &String| PRODUCT.contains(&name.as_str());
    let all: BTreeSet<String> = all.into_iter().filter(|name| !is_ours(name)).collect();
    let page = read("docs/developers/dependencies.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert!(all.contains("rustix") && all.contains("pulldown-cmark"), "{all:?}");
    assert_eq!(listed, all, "docs/developers/dependencies.md and the manifests differ");
}

/// A fenced block.
#[derive(Debug, PartialEq)]
struct Block {
    language: String,
    /// What the comment before it says: a word and the rest.
    mark: Option<(String, String)>,
    /// Where its first line is, from 1.
    line: usize,
    text: String,
}

/// The lines up to the one that begins with `end`.
fn until<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, end: &str) -> String {
    lines
        .take_while(|(_, line)| !line.starts_with(end))
        .map(|(_, line)| format!("{line}\n"))
        .collect()
}

/// The page's own `needs`, and its blocks.
fn blocks(text: &str) -> (Vec<String>, Vec<Block>) {
    let (mut needs, mut found) = (Vec::new(), Vec::new());
    let mut mark = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"))
        {
            let (word, rest) = comment.split_once(": ").unwrap_or((comment, ""));
            let is_of_page = word == "needs"
                && !text.lines().nth(index + 1).is_some_and(|l| l.starts_with("```"));
            if is_of_page {
                needs.extend(rest.split_whitespace().map(str::to_owned));
            } else {
                mark = Some((word.to_owned(), rest.to_owned()));
            }
        } else if line == "<!-- setup" {
            let text = until(&mut lines, "-->");
            let mark = Some(("setup".to_owned(), String::new()));
            found.push(Block { language: "sh".into(), mark, line: index + 2, text });
        } else if let Some(language) = line.strip_prefix("```") {
            let text = until(&mut lines, "```");
            let language = language.trim().to_owned();
            found.push(Block { language, mark: mark.take(), line: index + 2, text });
        } else if !line.trim().is_empty() {
            mark = None;
        }
    }
    (needs, found)
}

const PROGRAMS: [&str; 10] =
    ["sh", "python", "c", "cpp", "rust", "js", "go", "php", "java", "ruby"];

/// Pages whose commands are run.
fn tried_pages() -> Vec<PathBuf> {
    let of_users = |page: &PathBuf| {
        let name = name(page);
        name == "README.md"
            || name.starts_with("docs/tutorial/")
            || name.starts_with("docs/how-to/")
            || name.starts_with("docs/databases/")
    };
    pages().into_iter().filter(of_users).collect()
}

#[test]
fn blocks_that_are_not_run_say_why() {
    let mut run_count = 0;
    for page in tried_pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap()).1 {
            if !PROGRAMS.contains(&block.language.as_str()) {
                continue;
            }
            let place = format!("{}:{}", name(&page), block.line);
            match &block.mark {
                None => {
                    assert_eq!(block.language, "sh", "{place}: say how this is tried, or why not");
                    run_count += 1;
                }
                Some((word, why)) if word == "not run" => {
                    assert!(!why.is_empty(), "{place}: no reason");
                    println!("{place}: not run: {why}");
                }
                Some((word, rest)) if word == "same as" => {
                    let file = fs::read_to_string(root().join(rest)).expect(rest);
                    assert!(file == block.text, "{place} differs from {rest}");
                }
                Some((word, _)) => {
                    assert!(
                        ["file", "needs", "setup"].contains(&word.as_str()),
                        "{place}: {word}?"
                    );
                    run_count += usize::from(block.language == "sh");
                }
            }
        }
    }
    assert!(run_count > 30, "{run_count} blocks are run");
}

/// The blocks of a page as one script, which says on standard error where it is.
fn script(page: &Path, blocks: &[Block]) -> String {
    let mut script = String::from("set -eu\n");
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{}:{}", name(page), block.line);
        let word = block.mark.as_ref().map_or("", |(word, _)| word);
        let rest = block.mark.as_ref().map_or("", |(_, rest)| rest);
        let shown = blocks.get(index + 1).filter(|next| next.language == "text");
        match (block.language.as_str(), word) {
            (_, "not run" | "same as") => {}
            (_, "file") => {
                write!(script, "cat >'{rest}' <<'END OF FILE'\n{}END OF FILE\n", block.text)
                    .unwrap()
            }
            ("sh", "needs") if !rest.split_whitespace().all(has_needed) => {}
            ("sh", _) => {
                let run = format!("echo '== {place}' >&2\n{}", block.text);
                let run = shown.map_or(run.clone(), |text| compared(&run, &text.text));
                script.push_str(&run);
            }
            _ => {}
        }
    }
    script
}

/// Commands that fail when the end of what they print is not `shown`.
fn compared(commands: &str, shown: &str) -> String {
    let line_count = shown.lines().count();
    format!(
        "{{\n{commands}}} >../printed\n\
         tail -n {line_count} ../printed | diff - /dev/fd/4 4<<'END OF TEXT' >&2\n\
         {shown}END OF TEXT\n"
    )
}

/// The directory of what cargo built.
fn built() -> &'static Path {
    Path::new(ONEJOURNAL).parent().unwrap()
}

/// A library that was built for this test.
fn library(name: &str) -> PathBuf {
    let path = built().join("deps").join(name);
    assert!(path.exists(), "{}", path.display());
    path
}

/// Whether what a page or a block needs is installed; says so if not.
fn has_needed(name: &str) -> bool {
    match name.split_once(':') {
        Some((language, module)) => has_module(language, module),
        None if name == "python3" => python_with_extensions().is_some(),
        None => has_program(name),
    }
}

/// Everything that a page's commands find, in a directory of their own, which other users may
/// enter: a server runs as its own user.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = scratch_dir();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let place = Place { dir };
        let link = |from: &Path, to: &str| {
            let to = place.dir.path().join(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(from, to).unwrap();
        };
        for work in ["source/target/release", "work/target/release"] {
            for name in
                ["libonejournal_log.so", "libonejournal_log.so.0", "libonejournal_sqlite.so"]
            {
                link(&library(name), &format!("{work}/{name}"));
            }
        }
        link(&root().join("crates"), "source/crates");
        link(&root().join("plugins"), "source/plugins");
        link(Path::new(ONEJOURNAL), "bin/onejournal");
        if let Some(python) = find_python_with_extensions() {
            link(Path::new(python), "bin/python3");
        }
        place.keep_umount_apart();
        place
    }

    /// A page's `umount` takes its turn with the `onejournal ls` of other tests, as theirs do.
    fn keep_umount_apart(&self) {
        let path = self.dir.path().join("bin/umount");
        let lock = support::turns();
        let text = format!("#!/bin/sh\nexec flock -s {} /bin/umount \"$@\"\n", lock.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a script where it can break nothing: with mounts, processes, shared memory and a
    /// network of its own, which end with it, also when it fails and a server still runs. Two runs
    /// of a page have its ports once each.
    fn run(&self, script: &str) -> support::Ran {
        let path = std::env::var("PATH").unwrap_or_default();
        let paths = module_paths().map(|(variable, paths)| match variable {
            "PYTHONPATH" => (variable, with_package(paths)),
            _ => (variable, paths),
        });
        let bin = self.dir.path().join("bin");
        let _alone = alone();
        let start = format!(
            "{LET_GO}
             ip link set lo up && mount -t tmpfs tmpfs /dev/shm && exec bash -c \"$2\" page"
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--ipc", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["sh", "-c"])
            .args([&start, "sh", "no directory", script])
            .current_dir(self.dir.path().join("work"))
            .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", bin.display()))
            .env("SRC", self.dir.path().join("source"))
            .env("ONEJOURNAL_LIBRARY", library("libonejournal_sqlite.so"))
            .envs(paths)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("ONEJOURNAL_LOG")
            .env_remove("LD_LIBRARY_PATH");
        run(&mut command)
    }
}

/// Paths of Python's modules, with the package before them.
fn with_package(modules: OsString) -> OsString {
    let mut paths = root().join("plugins/python").into_os_string();
    paths.push(":");
    paths.push(modules);
    paths
}

fn can_run_pages() -> bool {
    can_mount() && has_namespaces() && has_program("ip") && has_program("flock")
}

#[test]
fn every_command_runs() {
    if !can_run_pages() {
        return;
    }
    let mut failed = String::new();
    let wanted = std::env::var("ONEJOURNAL_PAGES").unwrap_or_default();
    for page in tried_pages().into_iter().filter(|page| name(page).contains(&wanted)) {
        let (needs, blocks) = blocks(&fs::read_to_string(&page).unwrap());
        if !needs.iter().all(|program| has_needed(program)) {
            println!("{}: left out", name(&page));
            continue;
        }
        let began = Instant::now();
        let ran = Place::new().run(&script(&page, &blocks));
        println!("{}: {:?} after {:.1} s", name(&page), ran.code, began.elapsed().as_secs_f64());
        if ran.code != Some(0) {
            writeln!(failed, "{}: {:?}\n{}{}", name(&page), ran.code, ran.out, ran.err).unwrap();
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn a_command_that_fails_is_found() {
    if !can_run_pages() {
        return;
    }
    let page = root().join("docs/x.md");
    let run = |text: &str| Place::new().run(&script(&page, &blocks(text).1));
    let ran = run("```sh\ntrue\n```\n\n```sh\nfalse\ntrue\n```\n");
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), "== docs/x.md:2\n== docs/x.md:6\n"));
    let ran = run("<!-- file: a -->\n```c\nb\n```\n<!-- not run: no -->\n```sh\nfalse\n```\n\
         ```sh\ncat a\n```\n");
    assert_eq!(ran.good(), "b\n");
    let shows = |text: &str| {
        run(&format!("```sh\necho a\necho b\n```\n\nIt prints:\n\n```text\n{text}\n```\n"))
    };
    shows("b").ended(0);
    shows("c").ended(1);
}

/// The server that a page started is gone when a command after it has failed: it holds no lock any
/// more.
#[test]
fn servers_end_with_their_page() {
    if !can_run_pages() || !has_program("setsid") {
        return;
    }
    let (page, place) = (root().join("docs/x.md"), Place::new());
    let text = "```sh\nsetsid flock lock sh -c 'echo > held; exec sleep 1000' \
                </dev/null >/dev/null 2>&1 &\n\
                until [ -e held ]; do sleep 0.01; done\nfalse\n```\n";
    let ran = place.run(&script(&page, &blocks(text).1));
    ran.ended(1);
    let lock = fs::File::open(place.dir.path().join("work/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
}

/// Words of STYLE that leave open who or what is meant.
const VAGUE: [&str; 6] = ["whoever", "nobody", "somebody", "anybody", "everybody", "those"];

/// The places in a page where its prose has one of these words.
fn vague_words(page: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(line).to_lowercase();
        let words: Vec<&str> = line.split(|c: char| !c.is_alphabetic()).collect();
        for word in VAGUE.into_iter().filter(|word| words.contains(word)) {
            found.push(format!("{}: {word}: {line}", name(page)));
        }
    }
    found
}

/// Pages for users name who does what. Code, which `fsync` or a path may be, is left out.
#[test]
fn users_read_no_vague_words() {
    let is_for_users = |page: &PathBuf| {
        let name = name(page);
        !["docs/developers/", "docs/format/", "docs/results/"]
            .iter()
            .any(|dir| name.starts_with(dir))
    };
    let found: Vec<String> = pages()
        .into_iter()
        .filter(is_for_users)
        .flat_map(|page| vague_words(&page, &fs::read_to_string(&page).unwrap()))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let page = root().join("docs/x.md");
    assert_eq!(vague_words(&page, "Nobody knows `those`.\n\n```\nthose\n```\n").len(), 1);
}

/// Every command has its place in the reference. (Every mount option has, too: `pages/tests.rs`.)
#[test]
fn commands_are_explained() {
    let help = support::onejournal(["--help"]).good();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let mut names: Vec<String> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(|name| format!("`onejournal {name} "))
        .collect();
    assert!(names.len() > 8, "{names:?}");
    let text = fs::read_to_string(root().join("docs/reference/commands.md")).unwrap();
    names.retain(|name| !text.contains(name.as_str()));
    assert!(names.is_empty(), "not in commands.md: {names:?}");
}

/// All source text, with the lines of a string that goes on joined.
fn sources() -> String {
    let (mut text, mut dirs) = (String::new(), vec![root().join("crates")]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut pieces = text.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |joined, piece| joined + piece.trim_start())
}

/// Messages that the first column of a page's tables quotes, but for those of other programs.
fn quoted_messages(page: &str) -> Vec<String> {
    let others = ["`e2fsck`:", "`mount`:", "the kernel:", "SQLite:"];
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let ours = cells.filter(|cell| !others.iter().any(|other| cell.starts_with(other)));
    ours.flat_map(|cell| cell.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn messages_that_are_explained_exist() {
    let sources = sources();
    let is_there = |message: &str| message.split("...").all(|part| sources.contains(part.trim()));
    assert!(!is_there(concat!("no such ", "message, ", "surely")));
    let mut count = 0;
    for page in ["docs/reference/messages.md", "docs/how-to/several-machines.md"] {
        for message in quoted_messages(&fs::read_to_string(root().join(page)).unwrap()) {
            assert!(is_there(&message), "{page}: {message}: no message has these words");
            count += 1;
        }
    }
    assert!(count > 12, "{count} messages");
}
