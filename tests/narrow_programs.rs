//! Programs of 32 bits: positions in a directory have to fit into 31 bits.

use crate::support;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use onejournal_testing::{Need, has_program, skip};
use rustix::io::Errno;
use support::{Scratch, run, spawn, text};

/// Names of the directory: enough for a tree of hashes, and for many calls of `getdents`.
const NAME_COUNT: usize = 2000;

/// Lists its working directory with the oldest calls of the kernel, whose positions have 32 bits.
/// Then returns to each position and compares the name that follows. Its exit status says what is
/// wrong. It needs neither the headers nor the library of C.
const LISTER: &str = r#"
enum { EXIT = 1, WRITE = 4, OPEN = 5, LSEEK = 19, GETDENTS = 141, COUNT = 3000, ROOM = 4096 };
struct entry { unsigned ino, position; unsigned short len; char name[]; };
static char bytes[ROOM], names[COUNT][32];
static int positions[COUNT];

static int call(int number, int a, const void *b, int c)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

static int copy(char *to, const char *from)
{
    int len = 0;
    while ((to[len] = from[len]) && len < 31)
        len++;
    return len;
}

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static int list(int directory)
{
    int count = 0, size, at;
    while ((size = call(GETDENTS, directory, bytes, ROOM)) > 0) {
        for (at = 0; at < size; count++) {
            struct entry *entry = (void *)(bytes + at);
            int len;
            if (count == COUNT)
                return -1;
            len = copy(names[count], entry->name);
            call(WRITE, 1, names[count], len);
            call(WRITE, 1, "\n", 1);
            positions[count] = (int)entry->position;
            at += entry->len;
        }
    }
    return size < 0 ? -1 : count;
}

static int run(void)
{
    int directory = call(OPEN, (int)".", 0, 0), count = list(directory), n;
    if (count < 0)
        return 2;
    for (n = 0; n + 1 < count; n++) {
        if (positions[n] <= 0)
            return 3;
        if (call(LSEEK, directory, (void *)positions[n], 0) != positions[n])
            return 4;
        if (call(GETDENTS, directory, bytes, ROOM) <= 0)
            return 5;
        if (!same(((struct entry *)bytes)->name, names[n + 1]))
            return 6;
    }
    return 0;
}

void _start(void)
{
    call(EXIT, run(), 0, 0);
}
"#;

#[test]
fn a_program_of_32_bits_lists_a_directory_and_returns_to_each_position() {
    if !cfg!(target_arch = "x86_64") {
        skip(Need::Kernel, "needs the calls of a program for i386");
        return;
    }
    let Some(scratch) = Scratch::mounted("").filter(|_| has_program("cc")) else { return };
    let (source, lister) = (scratch.root().join("lister.c"), scratch.root().join("lister"));
    fs::write(&source, LISTER).unwrap();
    let flags = ["-m32", "-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie"];
    let mut compiler = Command::new("cc");
    compiler.args(flags).args(["-fno-stack-protector", "-fno-asynchronous-unwind-tables"]);
    run(compiler.args(["-o", text(&lister), text(&source)])).good();
    let names: BTreeSet<String> = (0..NAME_COUNT).map(|n| format!("name-{n}")).collect();
    let dir = scratch.path("d");
    fs::create_dir(&dir).unwrap();
    names.iter().for_each(|name| fs::write(dir.join(name), "").unwrap());
    let started = spawn(Command::new(&lister).current_dir(&dir).stdout(Stdio::piped()));
    let ran = match started {
        Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            skip(Need::Kernel, "needs a kernel that runs programs of 32 bits");
            return scratch.close_and_check();
        }
        started => started.unwrap().wait_with_output().unwrap(),
    };
    let listed = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(0), "the exit status says what is wrong (LISTER)");
    let mut listed: Vec<&str> = listed.lines().filter(|name| !name.starts_with('.')).collect();
    listed.sort_unstable();
    assert!(listed.iter().copied().eq(names.iter()), "{listed:?}");
    scratch.close_and_check();
}
