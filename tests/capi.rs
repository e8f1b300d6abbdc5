//! The header against the library: it compiles as C and C++, declares what is exported, and works.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use onejournal_testing::has_program;

fn header() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../capi")).join("include/onejournal_log.h")
}

/// The shared library that was built together with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let library = test.parent().expect("in a directory").join("libonejournal_log.so");
    assert!(library.exists(), "{}", library.display());
    library
}

fn run(command: &mut Command) -> Output {
    // Cargo's names directories with libraries of earlier builds.
    let output = command
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiles a program that has nothing but the header, twice.
fn compile_header(compiler: &str, name: &str, standard: &str) {
    if !has_program(compiler) {
        return;
    }
    let place = tempfile::tempdir().expect("directory");
    let text = place.path().join(name);
    let include = format!("#include \"{}\"\n", header().display()).repeat(2);
    let main = "{ onejournal_log_options o = ONEJOURNAL_LOG_OPTIONS; return o.durability; }";
    std::fs::write(&text, format!("{include}int main(void) {main}\n")).expect("source");
    run(Command::new(compiler).args(STRICT).args([standard, "-fsyntax-only"]).arg(text));
}

#[test]
fn the_header_compiles_as_c99() {
    compile_header("cc", "a.c", "-std=c99");
}

#[test]
fn the_header_compiles_as_cpp17() {
    compile_header("c++", "a.cc", "-std=c++17");
}

/// The names of functions that the text declares.
fn declared(text: &str) -> BTreeSet<String> {
    let mut is_comment = false;
    let mut names = BTreeSet::new();
    for line in text.lines() {
        is_comment |= line.trim_start().starts_with("/*");
        if !is_comment && !line.starts_with('#') {
            let words = line.split_inclusive('(').filter_map(|part| part.strip_suffix('('));
            let last = |text: &str| {
                let begin = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                text[begin.map_or(0, |at| at + 1)..].to_owned()
            };
            names.extend(words.map(last).filter(|name| name.starts_with("onejournal_")));
        }
        is_comment &= !line.contains("*/");
    }
    names
}

#[test]
fn the_library_exports_exactly_the_declared_functions() {
    let text = std::fs::read_to_string(header()).expect("header");
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let symbols = String::from_utf8(output.stdout).expect("text");
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| name.starts_with("onejournal_"))
        .map(str::to_owned)
        .collect();
    assert!(exported.len() > 20, "{exported:?}");
    assert_eq!(declared(&text), exported);
    // The comparison can fail.
    let other = format!("{text}\nint onejournal_forgotten(void);\n");
    assert_ne!(declared(&other), exported);
}

/// A program in `crates/capi`.
fn source(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../capi")).join(name)
}

/// Compiles a program against the header and the library.
fn compile(source: &Path, program: &Path) {
    let library = library();
    let directory = library.parent().expect("in a directory");
    let mut cc = Command::new("cc");
    cc.args(STRICT).args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-pthread", "-o"]).arg(program);
    cc.arg(source).arg("-I").arg(header().parent().expect("include"));
    cc.arg("-L").arg(directory).arg(format!("-Wl,-rpath,{}", directory.display()));
    run(cc.arg("-lonejournal_log"));
}

#[test]
fn a_c_program_uses_every_function() {
    let place = tempfile::tempdir().expect("directory");
    let program = place.path().join("program");
    compile(&source("tests/program.c"), &program);
    for is_nvram in [false, true] {
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let nvram = memory.path().join("nvram");
        std::fs::create_dir(&nvram).expect("directory");
        let log = place.path().join(format!("log-{is_nvram}"));
        let nvram = if is_nvram { nvram.into_os_string() } else { "".into() };
        run(Command::new(&program).args([log.as_os_str(), memory.path().as_os_str(), &nvram]));
    }
}

#[test]
fn a_c_program_uses_a_daemon() {
    let place = tempfile::tempdir().expect("directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let program = place.path().join("program");
    compile(&source("tests/program.c"), &program);
    let (directory, socket) = (place.path().join("log"), place.path().join("socket"));
    let options = log::Options {
        memory: memory.path().to_owned(),
        pool_bytes: 2 << 20,
        ..log::Options::default()
    };
    let server = log::ServerOptions::at(&socket);
    let server = log::Server::start(&directory, &options, &server).expect("serve");
    run(Command::new(&program).args([socket.as_os_str(), memory.path().as_os_str(), "".as_ref()]));
    // The daemon has it, and the directory itself is refused while it does.
    let log = log::Log::connect(&socket).expect("connect");
    let names = log.stream_names().expect("names");
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["app.wal"]);
    let refused = Command::new(&program)
        .args([directory.as_os_str(), memory.path().as_os_str(), "".as_ref()])
        .output()
        .expect("program");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains(&socket.display().to_string()), "{told}");
    drop(log);
    server.stop().expect("stop");
}

#[test]
fn a_c_program_without_standard_descriptors_loses_no_record() {
    let place = tempfile::tempdir().expect("directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let program = place.path().join("program");
    compile(&source("tests/descriptors.c"), &program);
    let (directory, socket) = (place.path().join("log"), place.path().join("socket"));
    let use_log = |log: &Path| run(Command::new(&program).args([log, memory.path()]));
    use_log(&directory);
    let log = log::Log::open(&directory, &log::Options::default()).expect("open");
    let stream = log.stream("first").expect("stream");
    assert_eq!(stream.read_from(stream.head()).expect("reader").count(), 300);
    drop(stream);
    for name in ["first", "second"] {
        log.remove_stream(name).expect("remove");
    }
    log.close().expect("close");
    let server = log::ServerOptions::at(&socket);
    let server = log::Server::start(&directory, &log::Options::default(), &server);
    let server = server.expect("serve");
    use_log(&socket);
    server.stop().expect("stop");
}

#[test]
fn the_example_in_the_header_works() {
    let place = tempfile::tempdir().expect("directory");
    let text = std::fs::read_to_string(header()).expect("header");
    let lines = text.lines().skip_while(|line| !line.contains("#include <onejournal_log.h>"));
    let example: String = lines
        .take_while(|line| line.starts_with(" *   "))
        .map(|line| format!("{}\n", line.trim_start_matches(" *   ")))
        .collect();
    let log = place.path().join("log").display().to_string();
    assert!(example.contains("/var/lib/app/log"));
    let text = place.path().join("example.c");
    std::fs::write(&text, example.replace("/var/lib/app/log", &log)).expect("source");
    let program = place.path().join("example");
    compile(&text, &program);
    let output = run(&mut Command::new(&program));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "durable\n");
    // Its shared memory had the default place, and went with the close.
    let incarnation = std::fs::read_to_string(format!("{log}/incarnation")).expect("incarnation");
    let memory = incarnation.split('"').find(|word| word.starts_with("/dev/shm/onejournal-"));
    let memory = Path::new(memory.expect("its name"));
    assert!(!memory.exists(), "{} is left", memory.display());
}

#[test]
fn the_example_program_appends_and_reads() {
    let place = tempfile::tempdir().expect("directory");
    let program = place.path().join("append");
    compile(&source("examples/append.c"), &program);
    let log = place.path().join("log");
    for run_count in 1..=2 {
        let output = run(Command::new(&program).arg(&log));
        let text = String::from_utf8(output.stdout).expect("text");
        let found: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(": ").map(|(_, record)| record))
            .collect();
        assert_eq!(found, ["first", "second", "third"].repeat(run_count));
    }
    let refused = Command::new(&program).output().expect("program");
    assert_eq!(refused.status.code(), Some(2), "without a directory");
}
