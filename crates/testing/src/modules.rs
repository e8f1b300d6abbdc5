//! Modules of other languages that tests need, such as a package of Python.
//!
//! The language's own program looks for a module. `scripts/setup-languages` puts modules into the
//! directory `languages` of cargo's target directory, and [`module_paths`] has the variables that
//! lead the programs there.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::abilities::{find_python_with_extensions, has_program};
use crate::skip::{Need, skip};

/// Names of languages, which are those of their programs, and a command of the shell that fails if
/// the program `$0` finds no module `$1`.
const LANGUAGES: [(&str, &str); 6] = [
    ("python3", r#""$0" -c "import $1""#),
    ("node", r#""$0" -e 'require(process.argv[1])' "$1""#),
    ("php", r#""$0" -r 'exit((int) !extension_loaded($argv[1]));' "$1""#),
    ("ruby", r#""$0" -e 'require ARGV[0]' "$1""#),
    ("java", r#"javap "$1""#),
    ("go", r#"ls "$("$0" env GOMODCACHE)/cache/download/$1/@v/"*.zip"#),
];

/// Variables in which programs find their modules, and places in the directory `languages`.
const PATHS: [(&str, &str); 3] =
    [("PYTHONPATH", "python"), ("NODE_PATH", "node/node_modules"), ("CLASSPATH", "java/*")];

/// The variables in which the programs of languages find modules, with their values.
pub fn module_paths() -> [(&'static str, OsString); 3] {
    let languages = languages();
    PATHS.map(|(variable, place)| {
        let before = std::env::var_os(variable).unwrap_or_default();
        let separator = if before.is_empty() { "" } else { ":" };
        let mut paths = before;
        paths.push(separator);
        paths.push(languages.join(place));
        (variable, paths)
    })
}

/// Where `scripts/setup-languages` puts modules: cargo puts a test into `debug/deps`, beside it.
fn languages() -> PathBuf {
    let test = std::env::current_exe().expect("a path of the test");
    test.ancestors().nth(3).expect("cargo's target directory").join("languages")
}

/// Whether the program of a language, such as `node`, finds a module; says so if not.
#[track_caller]
pub fn has_module(language: &str, module: &str) -> bool {
    let has = LANGUAGES.iter().find(|(name, _)| *name == language);
    let (_, has) = has.unwrap_or_else(|| panic!("{language} is no language that is known here"));
    let program = match language {
        "python3" => find_python_with_extensions(),
        language => Some(language),
    };
    let Some(program) = program.filter(|program| has_program(program)) else { return false };
    let mut command = Command::new("sh");
    command.args(["-c", has, program, module]).envs(module_paths());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let found = command.status().is_ok_and(|status| status.success());
    if !found {
        skip(Need::OptionalProgram, format!("needs {language}:{module}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_where_its_program_finds_it() {
        for (language, module) in
            [("python3", "sqlite3"), ("node", "fs"), ("php", "json"), ("ruby", "set")]
        {
            if has_program(language) {
                assert!(has_module(language, module), "{language}:{module}");
            }
        }
        if has_program("javap") {
            assert!(has_module("java", "java.sql.Connection"));
        }
        for (language, _) in LANGUAGES {
            assert!(!has_module(language, "no.such.module"), "{language}");
        }
    }

    #[test]
    #[should_panic(expected = "cobol is no language")]
    fn an_unknown_language_is_an_error() {
        has_module("cobol", "sqlite");
    }
}
