//! The languages of files, and which files are read at all.

/// How a file is written, as far as the rules tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
    /// Python, shell, Tcl, make: a comment begins with `#`.
    Script,
    Toml,
    Markdown,
    /// Text that people write, such as a unit of systemd.
    OtherText,
    /// Not read: data, pictures, results, lists of versions.
    Data,
}

/// The language of a file, by its name and its first line.
pub fn language(path: &str, text: &str) -> Language {
    if !is_read(path) {
        return Language::Data;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "rs" => Language::Rust,
        "c" | "h" | "cc" | "cpp" => Language::C,
        "py" | "sh" | "tcl" => Language::Script,
        "toml" => Language::Toml,
        "md" => Language::Markdown,
        _ if name == "Makefile" || text.starts_with("#!") => Language::Script,
        "yml" | "service" | "sysusers" | "conf" | "pc" | "1" | "5" | "8" => Language::OtherText,
        _ => Language::Data,
    }
}

/// Whether the file's content is examined. A size is known of all files.
pub fn is_read(path: &str) -> bool {
    let is_seed = path.starts_with("fuzz/seeds/");
    let is_data = [".svg", ".lock", ".json", ".zst", ".xz", ".gz", ".trace", ".html"];
    !is_data.iter().any(|end| path.ends_with(end)) && !is_seed && !is_generated(path)
}

/// Whether a program makes the file from others.
fn is_generated(path: &str) -> bool {
    ["docs/results/", "dist/man/", "dist/completions/"].iter().any(|from| path.starts_with(from))
}

#[test]
fn languages_are_known_by_name_and_first_line() {
    assert_eq!(language("crates/a/src/b.rs", ""), Language::Rust);
    assert_eq!(language("scripts/test", "#!/usr/bin/env bash\n"), Language::Script);
    assert_eq!(language("plugins/Makefile", ""), Language::Script);
    assert_eq!(language("docs/a.md", ""), Language::Markdown);
    assert_eq!(language("docs/results/README.md", ""), Language::Data);
    assert_eq!(language("fuzz/seeds/a", "#! no script"), Language::Data);
    assert_eq!(language("Cargo.lock", ""), Language::Data);
}
