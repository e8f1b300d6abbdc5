//! `make install`, from the build of these tests: what it installs works from where it is
//! installed, and `make uninstall` takes all of it away.

use crate::support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::has_program;
use support::{Ran, run, scratch_dir, system, text};

/// `make ACTION` into `root`: the command and the libraries that were built for these tests.
fn make(action: &str, root: &Path, variables: &[(&str, &str)]) -> Ran {
    let built = Path::new(support::ONEJOURNAL).parent().unwrap();
    let (target, profile) = (built.parent().unwrap(), built.file_name().unwrap());
    let mut command = Command::new("make");
    command.arg("-s").arg("-C").arg(source()).arg(action);
    command.arg(format!("DESTDIR={}", root.display()));
    command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
    command.env("CARGO_TARGET_DIR", target).env("PROFILE", profile);
    // `make test` sets these variables when it runs this test.
    run(command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"))
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All that is below `dir` and no directory, without the head of its path.
fn files(dir: &Path) -> BTreeSet<String> {
    let out = system("find", [text(dir), "!", "-type", "d", "-printf", "%P\n"]).good();
    out.lines().map(String::from).collect()
}

/// The man pages and completions of this build: the ends of their installed paths, and their texts.
fn pages() -> Vec<(String, Vec<u8>)> {
    let place = scratch_dir();
    let program = Path::new(support::ONEJOURNAL).with_file_name("onejournal-pages");
    run(Command::new(program).arg(place.path())).good();
    let installed = |name: String| {
        let text = fs::read(place.path().join(&name)).unwrap();
        let end = match name.split_once('/').unwrap() {
            ("man", page) => format!("/man{}/{page}", page.rsplit('.').next().unwrap()),
            (_, file) => format!("/{}", file.trim_end_matches(".bash")),
        };
        (end, text)
    };
    files(place.path()).into_iter().map(installed).collect()
}

fn can_install() -> bool {
    has_program("make") && has_program("strip") && has_program("readelf")
}

#[test]
fn a_c_program_is_built_with_pkg_config_from_an_installation() {
    if !can_install() || !has_program("pkg-config") || !has_program("cc") {
        return;
    }
    let place = scratch_dir();
    let root = place.path().join("root");
    make("install", &root, &[("PREFIX", "/opt/oj"), ("SBINDIR", "/opt/oj/sbin")]).good();
    let program = place.path().join("program");
    for how in ["--shared", "--static"] {
        let script = r#"
            export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_PATH="$root/opt/oj/lib/pkgconfig"
            if [ "$how" = --static ]; then rm "$root"/opt/oj/lib/libonejournal_log.so*; fi
            cc -std=c99 -D_POSIX_C_SOURCE=200809L -o "$program" "$source" $(pkg-config --cflags --libs $how onejournal) -pthread"#;
        let mut command = Command::new("sh");
        command.args(["-ec", script]).env("root", &root).env("program", &program).env("how", how);
        command.env("source", source().join("crates/capi/tests/program.c"));
        run(&mut command).good();
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let log = place.path().join(format!("log{how}"));
        let mut command = Command::new(&program);
        command.args([text(&log), text(memory.path()), ""]);
        command.env("LD_LIBRARY_PATH", root.join("opt/oj/lib"));
        run(&mut command).good();
    }
}

/// Each module alone: of the three, imported together, Debian's pip makes setuptools fail.
#[test]
fn the_python_package_is_built_where_its_tools_are_and_names_the_one_that_is_missing() {
    if !can_install() {
        return;
    }
    let place = scratch_dir();
    let python = place.path().join("python");
    // A Python with the modules of `$HAS`, of which two cannot be imported in one statement.
    let script = "#!/bin/sh\ncase \"$2\" in\n*,*) exit 1;;\n\
                  import\\ *) case \" $HAS \" in *\" ${2#import } \"*) ;; *) exit 1;; esac;;\n\
                  pip) echo \"made: $*\";;\nesac\n";
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let wheel = |modules: &str| {
        let mut command = Command::new("make");
        command.arg("-s").arg("-C").arg(source()).arg("python-wheel");
        command.arg(format!("PYTHON={}", python.display())).env("HAS", modules);
        run(command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"))
    };
    assert!(wheel("pip setuptools wheel").good().contains("made: -m pip wheel"));
    wheel("pip setuptools").refused(2, "apt-get install python3-wheel");
    wheel("setuptools wheel").refused(2, "apt-get install python3-pip");
}

/// The plug-ins are not built for this test, so it reads the headers: what they include in quotes
/// must be installed, too.
#[test]
fn headers_of_plugins_include_only_installed_headers() {
    let script = fs::read_to_string(source().join("scripts/install")).unwrap();
    let read = |path: &str| fs::read_to_string(source().join("plugins").join(path)).unwrap();
    let mut found = BTreeSet::new();
    for header in ["leveldb/onejournal_leveldb.h", "rocksdb/onejournal_rocksdb.h"] {
        let names = |text: &str| -> Vec<String> {
            let quoted = text.lines().filter_map(|line| line.strip_prefix("#include \""));
            quoted.filter_map(|rest| rest.split('"').next()).map(String::from).collect()
        };
        for name in names(&read(header)) {
            let path = format!("common/{name}");
            assert!(script.contains(&format!("put 644 plugins/{path} ")), "{header}: {name}");
            assert!(names(&read(&path)).is_empty(), "{path} includes another header");
            found.insert(name);
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn an_installation_is_stripped_complete_and_removed_again() {
    if !can_install() {
        return;
    }
    let place = scratch_dir();
    let root = place.path();
    make("install", root, &[]).good();
    let found = files(root);
    for expected in [
        "usr/local/bin/onejournal",
        "usr/local/lib/libonejournal_log.so.0",
        "usr/local/lib/systemd/system/onejournal-volume@.service",
        "usr/local/lib/sysusers.d/onejournal.conf",
        "usr/local/share/doc/onejournal/examples/database-on-mount.conf",
        "usr/local/share/onejournal/grafana/onejournal.json",
        "usr/local/share/onejournal/prometheus/onejournal.rules.yml",
        "sbin/mount.onejournal",
        "sbin/mount.fuse.onejournal",
        "sbin/mount.fuseblk.onejournal",
        "sbin/fsck.onejournal",
    ] {
        assert!(found.contains(expected), "no {expected} in {found:?}");
    }
    let made = pages();
    assert!(made.len() >= 10, "{made:?}");
    for (end, text) in made {
        let is_same =
            |path: &&String| path.ends_with(&end) && fs::read(root.join(path)).unwrap() == text;
        let share = || found.iter().filter(|path| path.starts_with("usr/local/share/"));
        assert_eq!(share().filter(is_same).count(), 1, "{end} in {found:?}");
    }
    let lib = root.join("usr/local/lib");
    for name in ["libonejournal_log.so.0", "libonejournal_sqlite.so", "../bin/onejournal"] {
        let sections = system("readelf", ["-SW", text(&lib.join(name))]).good();
        assert!(!sections.contains(".debug_info") && !sections.contains(".symtab"), "{name}");
    }
    let dynamic = system("readelf", ["-dW", text(&lib.join("libonejournal_log.so"))]).good();
    assert!(dynamic.contains("[libonejournal_log.so.0]"), "{dynamic}");
    // Nothing of the place where it was put together is in the texts.
    for name in ["pkgconfig/onejournal.pc", "systemd/system/onejournal-logd.service"] {
        let text = fs::read_to_string(lib.join(name)).unwrap();
        assert!(!text.contains("onejournal-test-") && !text.contains('@'), "{text}");
    }
    make("uninstall", root, &[]).good();
    assert_eq!(files(root), BTreeSet::new());
    // Without a build the script says so, and installs nothing.
    let mut command = Command::new(source().join("scripts/install"));
    command.arg("install").env("DESTDIR", root).env("PROFILE", "none");
    run(&mut command).refused(1, "run cargo build --profile none first");
    assert_eq!(files(root), BTreeSet::new());
}

/// Units and drop-ins, with the paths of this installation.
#[test]
fn systemd_accepts_the_units() {
    if !can_install() || !has_program("systemd-analyze") {
        return;
    }
    let place = scratch_dir();
    let prefix = place.path().join("prefix");
    let sbin = place.path().join("sbin");
    make("install", Path::new(""), &[("PREFIX", text(&prefix)), ("SBINDIR", text(&sbin))]).good();
    let installed = prefix.join("lib/systemd/system");
    let examples = prefix.join("share/doc/onejournal/examples");
    let (logd, volume) = ("onejournal-logd.service", "onejournal-volume@srv-data.service");
    let ways = [
        ("mount", "database", "database-on-mount.conf"),
        ("service", "database", "database-on-service.conf"),
        ("mount", "k3s", "k3s-on-mount.conf"),
        ("service", "kubelet", "kubelet-on-service.conf"),
    ];
    for (way, program, drop_in) in ways {
        let units = place.path().join(way);
        let drop_ins = units.join(format!("{program}.service.d"));
        fs::create_dir_all(&drop_ins).unwrap();
        let unit = units.join(format!("{program}.service"));
        fs::write(unit, "[Service]\nExecStart=/bin/true\n").unwrap();
        fs::copy(examples.join(drop_in), drop_ins.join("onejournal.conf")).unwrap();
        if way == "mount" {
            fs::copy(examples.join("srv-data.mount"), units.join("srv-data.mount")).unwrap();
            fs::copy(installed.join(logd), units.join(logd)).unwrap();
        } else {
            for name in [volume, "onejournal-volume@srv-etcd.service"] {
                fs::copy(installed.join("onejournal-volume@.service"), units.join(name)).unwrap();
            }
        }
    }
    let verify = |way: &str, name: &str| {
        let units = place.path().join(way);
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]).arg(units.join(name));
        // Its own and the system's.
        run(command.env("SYSTEMD_UNIT_PATH", format!("{}:", units.display())))
    };
    for (way, name) in [
        ("mount", logd),
        ("mount", "srv-data.mount"),
        ("mount", "database.service"),
        ("mount", "k3s.service"),
        ("service", volume),
        ("service", "database.service"),
        ("service", "kubelet.service"),
    ] {
        let ran = verify(way, name);
        let is_ours = |line: &&str| {
            let words = ["onejournal", "srv-", "database", "k3s", "kubelet"];
            words.iter().any(|word| line.contains(word))
        };
        let ours: Vec<&str> = ran.err.lines().filter(is_ours).collect();
        assert!(ran.code == Some(0) && ours.is_empty(), "{name}: {ran:?}");
    }
    // It would say what is wrong.
    let path = place.path().join("service").join(volume);
    let unit = fs::read_to_string(&path).unwrap();
    fs::write(&path, unit.replace("Type=notify", "Type=notified")).unwrap();
    let ran = verify("service", volume);
    assert!(ran.err.contains("notified"), "{ran:?}");
    make("uninstall", Path::new(""), &[("PREFIX", text(&prefix)), ("SBINDIR", text(&sbin))]).good();
    assert_eq!(files(&prefix), BTreeSet::new());
}

/// With the page's directory in place of the example's. Redis's own unit has `Restart=always`, and
/// may write only to the directories that it names.
#[test]
fn drop_ins_of_pages_have_the_lines_of_the_examples() {
    let without_comments = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(String::from).collect()
    };
    let docs = source().join("docs");
    let mut shown = Vec::new();
    for page in files(&docs).into_iter().filter(|page| page.ends_with(".md")) {
        let text = fs::read_to_string(docs.join(&page)).unwrap();
        let blocks = text.split("```ini\n").skip(1).filter_map(|rest| rest.split("```").next());
        let drop_ins = blocks.filter(|block| block.contains("RequiresMountsFor="));
        shown.extend(drop_ins.map(|block| (page.clone(), without_comments(block))));
    }
    let wanted = [
        ("databases/etcd.md", "database-on-mount.conf", "/srv/etcd"),
        ("databases/etcd.md", "k3s-on-mount.conf", "/srv/data"),
        ("databases/etcd.md", "kubelet-on-service.conf", "/srv/data"),
        ("databases/mariadb.md", "database-on-mount.conf", "/srv/data"),
        ("databases/postgresql.md", "database-on-mount.conf", "/srv/pg"),
        ("databases/redis.md", "database-on-mount.conf", "/srv/data"),
        ("how-to/mount-at-boot.md", "database-on-mount.conf", "/srv/data"),
    ];
    let wanted = wanted.map(|(page, example, dir)| {
        let text = fs::read_to_string(source().join("dist/examples").join(example)).unwrap();
        let mut lines = without_comments(&text.replace("/srv/data", dir));
        if page == "databases/redis.md" {
            lines.retain(|line| !line.starts_with("Restart"));
            let service = lines.iter().position(|line| line == "[Service]").unwrap();
            lines.insert(service + 1, format!("ReadWritePaths={dir}/redis"));
        }
        (page.to_owned(), lines)
    });
    assert_eq!(shown, wanted);
}
