//! A second process that does what it is told, as any user: a Python interpreter.
//!
//! It keeps its variables, open files and locks between the statements it is given, and it can map
//! memory, which safe Rust cannot.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::spawn;
use onejournal_testing::has_program;

const LOOP: &str = r#"
import ctypes, errno, fcntl, json, mmap, os, socket, sqlite3, stat, struct, sys
for line in sys.stdin:
    r = None
    try:
        exec(json.loads(line), globals())
        answer = {"value": r}
    except OSError as error:
        answer = {"errno": error.errno}
    except BaseException as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
"#;

/// The process; it ends with the value.
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Works in `dir`. `None`, and a word about it, where there is no Python.
    pub fn new(dir: &Path) -> Option<Peer> {
        if !has_program("python3") { None } else { Some(Peer::start(Command::new(python()), dir)) }
    }

    /// The same as another user, who is in no group but `gid`.
    pub fn as_user(dir: &Path, uid: u32, gid: u32) -> Option<Peer> {
        if !has_program("python3") || !has_program("setpriv") {
            return None;
        }
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg("--clear-groups").arg(python());
        Some(Peer::start(command, dir))
    }

    fn start(mut command: Command, dir: &Path) -> Peer {
        command.args(["-I", "-c", LOOP]).current_dir(dir);
        let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut peer = Peer { child, input, output };
        peer.good("pass"); // it has started, and needs the directory only when told to use it
        peer
    }

    /// Has it run a statement; what that leaves in the variable `r`, or the errno it fails with.
    #[track_caller]
    pub fn run(&mut self, statement: &str) -> Result<Value, i32> {
        let input = self.input.as_mut().expect("is open until the end");
        writeln!(input, "{}", json!(statement)).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        if let Some(errno) = answer["errno"].as_i64() {
            return Err(i32::try_from(errno).unwrap());
        }
        assert!(answer["error"].is_null(), "{statement}: {answer}");
        Ok(answer["value"].clone())
    }

    /// The statement works.
    #[track_caller]
    pub fn good(&mut self, statement: &str) -> Value {
        self.run(statement).unwrap_or_else(|errno| panic!("{statement}: errno {errno}"))
    }

    /// The statement fails with this errno.
    #[track_caller]
    pub fn fails(&mut self, errno: rustix::io::Errno, statement: &str) {
        let found = self.run(statement);
        assert_eq!(found, Err(errno.raw_os_error()), "{statement}: wanted {errno}");
    }
}

/// The system's own, which every user can run.
pub fn python() -> &'static str {
    let system = "/usr/bin/python3";
    if Path::new(system).exists() { system } else { "python3" }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take()); // the end of its input ends it
        let _ = self.child.wait();
    }
}
