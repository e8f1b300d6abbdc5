//! Users of one daemon that do not trust each other. In a program of its own: it starts itself as
//! other users.

use crate::common;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{TestDirectory, records};
use onejournal::{Log, LogError, Lsn, Options, Server, ServerOptions};
use onejournal_testing::{has_program, is_root};

/// Serves the log in a directory that other users find.
fn serve(test_dir: &TestDirectory) -> Server {
    let for_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(test_dir.root.path(), for_all).expect("permissions");
    let server = ServerOptions::at(test_dir.socket());
    Server::start(test_dir.log(), &test_dir.options(), &server).expect("serve")
}

/// A copy of this program where other users find it.
fn copy_program(test_dir: &TestDirectory, name: &str) -> PathBuf {
    let program = test_dir.root.path().join(name);
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("copy");
    program
}

/// Another user of the daemon, started by the test below.
#[test]
#[ignore = "a process of the other test"]
fn a_stranger() {
    let Some(socket) = std::env::var_os("STRANGER_SOCKET") else { return };
    let log = Log::connect(socket).expect("connect");
    let is_denied = |result: Result<_, LogError>| matches!(result, Err(LogError::Denied(_)));
    assert!(is_denied(log.stream("private").map(|_| ())));
    assert!(is_denied(log.remove_stream("private")));
    assert!(is_denied(log.salvage("private", Lsn(0)).map(|_| ())));
    assert!(is_denied(log.discard_damaged("private").map(|_| ())));
    let public = log.stream("public").expect("stream");
    assert_eq!(records(&public), [b"public"]);
    assert!(is_denied(public.append(b"x").map(|_| ())));
    assert!(is_denied(public.flush()));
    assert!(is_denied(public.truncate_before(public.end())));
    assert!(is_denied(log.remove_stream("public")));
    let own = log.stream("own").expect("made");
    let lsn = own.append(b"own").expect("append");
    own.sync(lsn).expect("sync");
    let names: Vec<String> =
        log.stream_names().expect("names").iter().map(ToString::to_string).collect();
    assert_eq!(names, ["own", "public"]);
    println!("a stranger has seen all");
}

#[test]
fn users_have_their_own_streams_and_what_others_let_them() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    if !is_root() {
        return;
    }
    let test_dir = TestDirectory::new(false);
    let connect = || Log::connect(test_dir.socket()).expect("connect");
    let server = serve(&test_dir);
    let log = connect();
    for name in ["private", "public"] {
        let stream = log.stream(name).expect("stream");
        let lsn = stream.append(name.as_bytes()).expect("append");
        stream.sync(lsn).expect("sync");
    }
    drop(log);
    server.stop().expect("stop");
    onejournal::permit(&test_dir.log(), "public", 0, 0o604).expect("no daemon");
    let _server = serve(&test_dir);
    let program = copy_program(&test_dir, "stranger");
    let output = std::process::Command::new(&program)
        .args(["--exact", "users::a_stranger", "--ignored", "--nocapture"])
        .env("STRANGER_SOCKET", test_dir.socket())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("a stranger has seen all"), "{said}{output:?}");
    assert_eq!(records(&connect().stream("own").expect("root may")), [b"own"]);
}

#[test]
fn a_directory_that_others_could_have_prepared_is_not_served() {
    use std::os::unix::fs::{chown, symlink};
    const NOBODY: u32 = 65_534;
    let test_dir = TestDirectory::new(false);
    let options = test_dir.options();
    let (directory, link) = (test_dir.log(), test_dir.root.path().join("link"));
    let refusal = |directory: &std::path::Path| {
        let server = ServerOptions::at(test_dir.socket());
        let served = Server::start(directory, &options, &server).map(drop);
        let opened = Log::open(directory, &options).map(drop);
        let [served, opened] = [served, opened].map(|it| it.expect_err("refused").to_string());
        assert_eq!(served, opened);
        assert!(served.contains(&directory.display().to_string()), "{served}");
        served
    };
    std::fs::create_dir(&directory).expect("directory");
    symlink(&directory, &link).expect("link");
    assert!(refusal(&link).contains("symbolic link"));
    for mode in [0o777, 0o1777, 0o770] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&directory, permissions).expect("mode");
        assert!(refusal(&directory).contains("can be written by other users"));
    }
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).expect("mode");
    if is_root() {
        chown(&directory, Some(NOBODY), None).expect("given");
        assert!(refusal(&directory).contains("belongs to user 65534"));
        chown(&directory, Some(0), None).expect("taken back");
    }
    assert_eq!(std::fs::read_dir(&directory).expect("directory").count(), 0, "nothing was made");
    Log::open(&directory, &options).expect("ours");
}

/// A user of the test below, with what the group's right to `shared` lets it do.
#[test]
#[ignore = "a process of the other test"]
fn a_colleague() {
    let Some(socket) = std::env::var_os("COLLEAGUE_SOCKET") else { return };
    let (may, line) = (var("COLLEAGUE_MAY"), var("COLLEAGUE_LINE"));
    let log = Log::connect(socket).expect("connect");
    let names = log.stream_names().expect("names");
    if may == "nothing" {
        let opened = log.existing_stream("shared").map(|_| ());
        assert!(names.is_empty() && matches!(opened, Err(LogError::Denied(_))), "{opened:?}");
        return println!("a colleague has done it");
    }
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shared"]);
    let stream = log.existing_stream("shared").expect("it may").expect("a stream");
    let before = records(&stream);
    match (may.as_str(), stream.append(line.as_bytes())) {
        ("write", Ok(lsn)) => {
            stream.sync(lsn).expect("sync");
            stream.flush().expect("flush");
            assert_eq!(records(&stream), [before, vec![line.into_bytes()]].concat());
            stream.release();
        }
        ("read", Err(LogError::Denied(_))) => assert!(!before.is_empty(), "it reads"),
        (_, done) => panic!("it may {may}: {done:?}"),
    }
    let removed = log.remove_stream("shared");
    assert!(matches!(removed, Err(LogError::Denied(_))), "its owner's affair: {removed:?}");
    println!("a colleague has done it");
}

fn var(name: &str) -> String {
    std::env::var(name).expect(name)
}

#[test]
fn users_of_a_group_use_one_stream_in_turns() {
    const GROUP: u32 = 60_000;
    if !is_root() || !has_program("setpriv") {
        return;
    }
    let test_dir = TestDirectory::new(false);
    let program = copy_program(&test_dir, "colleague");
    let permit = |mode: u32| onejournal::permit(&test_dir.log(), "shared", GROUP, mode);
    let colleague = |who: &[&str], may: &str, line: &str| {
        let output = std::process::Command::new("setpriv")
            .args(who)
            .arg(&program)
            .args(["--exact", "users::a_colleague", "--ignored", "--nocapture"])
            .env("COLLEAGUE_SOCKET", test_dir.socket())
            .env("COLLEAGUE_MAY", may)
            .env("COLLEAGUE_LINE", line)
            .current_dir("/")
            .output()
            .expect("run");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("a colleague has done it"), "{who:?}: {said}{output:?}");
    };
    // Its only group, one of its groups, and not in the group.
    let first = ["--reuid=65533", "--regid=60000", "--clear-groups"];
    let second = ["--reuid=65532", "--regid=65532", "--groups=65531,60000"];
    let other = ["--reuid=65530", "--regid=65530", "--clear-groups"];
    let server = serve(&test_dir);
    let log = Log::connect(test_dir.socket()).expect("connect");
    let stream = log.stream("shared").expect("stream");
    let lsn = stream.append(b"made").expect("append");
    stream.sync(lsn).expect("sync");
    drop((stream, log));
    colleague(&first, "nothing", "");
    assert!(matches!(permit(0o660), Err(LogError::InUse(_))), "it has read the permissions");
    server.stop().expect("stop");
    permit(0o660).expect("no daemon");
    let server = serve(&test_dir);
    for (who, line) in [(&first, "one"), (&second, "two"), (&first, "three")] {
        colleague(who, "write", line);
    }
    colleague(&other, "nothing", "");
    server.stop().expect("stop");
    permit(0o640).expect("no daemon");
    let _server = serve(&test_dir);
    colleague(&second, "read", "four");
    let log = Log::connect(test_dir.socket()).expect("connect");
    let found = records(&log.stream("shared").expect("stream"));
    assert_eq!(found, ["made", "one", "two", "three"].map(|line| line.as_bytes().to_vec()));
}

/// The settings of a user's log name a directory for NVRAM. Root makes nothing there for the user
/// if the user may not.
#[test]
fn regression_a_users_log_does_not_have_root_make_a_directory_anywhere() {
    use std::os::unix::fs::{MetadataExt, chown};
    const NOBODY: u32 = 65_534;
    if !is_root() {
        return;
    }
    let test_dir = TestDirectory::new(false);
    let for_all = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(test_dir.memory.path(), for_all).expect("mode");
    let options = Options { owner: Some((NOBODY, NOBODY)), ..test_dir.options() };
    let directory = test_dir.log();
    std::fs::create_dir(&directory).expect("directory");
    chown(&directory, Some(NOBODY), Some(NOBODY)).expect("given");
    Log::open(&directory, &options).expect("root may").close().expect("closed");
    let path = directory.join("service.json");
    assert_eq!(std::fs::metadata(&path).expect("there").uid(), NOBODY);
    let victim = tempfile::tempdir().expect("directory");
    let text = std::fs::read_to_string(&path).expect("settings");
    let mut settings: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    settings["nvram"] = victim.path().display().to_string().into();
    settings["durability"] = "process".into();
    std::fs::write(&path, settings.to_string()).expect("written by its owner");
    let refused = Log::open(&directory, &options).err().expect("refused").to_string();
    assert!(refused.contains("permission denied for user 65534"), "{refused}");
    assert_eq!(std::fs::read_dir(victim.path()).expect("directory").count(), 0);
}

/// Files of a log name its memory and its NVRAM, and a user writes these files. The paths lead
/// through a link that another user made, and can lead elsewhere at any moment.
#[test]
fn regression_paths_in_a_logs_files_lead_through_no_link_of_another_user() {
    use std::os::unix::fs::{lchown, symlink};
    const OTHER: u32 = 65_534;
    if !is_root() {
        return;
    }
    for (is_nvram, file, name) in
        [(false, "incarnation", "memory"), (true, "service.json", "nvram")]
    {
        let test_dir = TestDirectory::new(is_nvram);
        drop(Log::open(test_dir.log(), &test_dir.options()).expect("made"));
        let (link, path) = (test_dir.root.path().join("link"), test_dir.log().join(file));
        symlink(test_dir.memory.path(), &link).expect("link");
        let text = std::fs::read_to_string(&path).expect("there");
        let mut named: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let before = PathBuf::from(named[name].as_str().expect("a path"));
        named[name] = link.join(before.file_name().expect("a name")).display().to_string().into();
        std::fs::write(&path, named.to_string()).expect("written by its owner");
        let options = Options { nvram: None, durability: None, ..test_dir.options() };
        Log::open(test_dir.log(), &options).map(drop).expect("a link of its owner");
        lchown(&link, Some(OTHER), None).expect("given");
        let refused = Log::open(test_dir.log(), &options).map(drop).expect_err("refused");
        let refused = refused.to_string();
        assert!(refused.contains("link is a symbolic link of user 65534"), "{file}: {refused}");
    }
}
