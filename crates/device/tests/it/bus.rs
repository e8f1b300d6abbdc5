//! SIGBUS is an error for a mapping of this library whose file became shorter. Anywhere else it has
//! its previous effect. The tests run in a program of their own, one at a time, because a signal
//! handler belongs to the whole process.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use host::Access;
use onejournal_device::{Durability, MappedNvram, Nvram, SharedWords};

/// A file on tmpfs.
fn memory_file(len_bytes: u64) -> File {
    let file = tempfile::tempfile_in("/dev/shm").expect("a file on tmpfs");
    file.set_len(len_bytes).expect("length");
    file
}

fn words(file: &File) -> SharedWords {
    SharedWords::of_file(file, 512).expect("words")
}

fn handler_of_bus() -> libc::sigaction {
    // SAFETY: all zeros are a `sigaction`; a null action asks only.
    unsafe {
        let mut found = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut found), 0);
        found
    }
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn count_plainly(_: c_int) {
    SEEN.fetch_add(100, Ordering::Relaxed);
}

fn set_handler(handler: libc::sighandler_t, flags: c_int) {
    // SAFETY: a handler of that kind, which only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
    }
}

fn raise() {
    // SAFETY: sends this process a signal.
    unsafe { assert_eq!(libc::raise(libc::SIGBUS), 0) };
}

/// Runs one of the tests below in a process of its own.
fn child(name: &str) -> Output {
    onejournal_testing::again(module_path!(), name).output().expect("run")
}

#[test]
#[ignore = "a process of the test below"]
fn a_shared_file_that_is_cut() {
    let file = memory_file(1 << 20);
    let copy = file.try_clone().expect("copy").into();
    let class = Some(Durability::Process);
    let nvram = MappedNvram::share("file", copy, Access::ReadWrite, class).expect("shared");
    nvram.write_durable(0, &[b"kept"]).expect("written");
    file.set_len(4096).expect("cut");
    let mut found = [0; 4];
    nvram.read(0, &mut found).expect("what is there is read");
    assert_eq!(&found, b"kept");
    let says = |result: onejournal_device::Result<()>| result.expect_err("gone").to_string();
    let lost = says(nvram.write_durable((1 << 20) - 4, &[b"lost"]));
    assert!(lost.contains("made shorter"), "{lost}");
    // From now on nothing is told to be stored, or read.
    says(nvram.store(0, b"x"));
    says(nvram.persist());
    says(nvram.read(0, &mut found));
    println!("it lives");
}

#[test]
#[ignore = "a process of the test below"]
fn a_fault_in_a_mapping_that_is_not_ours() {
    let file = memory_file(4096);
    let _words = words(&file);
    let other = memory_file(4096);
    let length = 4096;
    // SAFETY: maps a file that only this test uses, and reads it.
    unsafe {
        use std::os::fd::AsRawFd;
        let (how, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let start = libc::mmap(std::ptr::null_mut(), length, how, shared, other.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        other.set_len(0).expect("cut");
        println!("before");
        std::ptr::read_volatile(start.cast::<u8>());
    }
    println!("it lives");
}

#[test]
#[ignore = "a process of the test below"]
fn a_signal_that_was_sent() {
    // A C program's: that of Rust's standard library lets the first one pass.
    set_handler(libc::SIG_DFL, 0);
    let file = memory_file(4096);
    let _words = words(&file);
    println!("before");
    raise();
    println!("it lives");
}

#[test]
#[ignore = "a process of the test below"]
fn mappings_one_after_another_keep_no_memory() {
    let file = memory_file(4096);
    let used = || {
        drop(words(&file));
        // SAFETY: asks the allocator.
        unsafe { libc::mallinfo2().uordblks }
    };
    // Two, because the C library adds a flag to a handler that it restores.
    let before = used().max(used());
    for _ in 0..1000 {
        used();
    }
    let more = used().saturating_sub(before);
    assert!(more < 16 << 10, "{more} bytes more after 1,000 mappings");
    println!("it lives");
}

#[test]
fn sigbus_is_an_error_of_ours_and_what_it_was_elsewhere() {
    for name in ["a_shared_file_that_is_cut", "mappings_one_after_another_keep_no_memory"] {
        let lived = child(name);
        assert!(String::from_utf8_lossy(&lived.stdout).contains("it lives"), "{lived:?}");
    }
    // The handler of Rust's standard library, which every Rust program has, does what the default
    // does.
    for name in ["a_fault_in_a_mapping_that_is_not_ours", "a_signal_that_was_sent"] {
        let died = child(name);
        let said = String::from_utf8_lossy(&died.stdout).into_owned();
        assert!(said.contains("before") && !said.contains("it lives"), "{died:?}");
        assert_eq!(died.status.signal(), Some(libc::SIGBUS), "{died:?}");
    }
    keeps_the_handler_that_was_there();
}

fn keeps_the_handler_that_was_there() {
    let with_information = count as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    let plain = count_plainly as extern "C" fn(c_int);
    let kinds = [
        (with_information as libc::sighandler_t, libc::SA_SIGINFO, 1),
        (plain as libc::sighandler_t, 0, 100),
        (libc::SIG_IGN, 0, 0),
    ];
    for (handler, flags, adds) in kinds {
        set_handler(handler, flags);
        SEEN.store(0, Ordering::Relaxed);
        let file = memory_file(8192);
        let (first, second) = (words(&file), words(&memory_file(4096)));
        assert_ne!(handler_of_bus().sa_sigaction, handler, "ours is over it");
        raise();
        assert_eq!(SEEN.load(Ordering::Relaxed), adds, "what was sent goes there");
        file.set_len(0).expect("cut");
        assert_eq!(first.word(0).load(Ordering::Relaxed), 0);
        assert!(first.check().is_err() && second.check().is_ok());
        assert_eq!(SEEN.load(Ordering::Relaxed), adds, "what is ours does not");
        drop((first, second));
        assert_eq!(handler_of_bus().sa_sigaction, handler, "back when the last mapping went");
    }
    // One that was installed over ours stays, and ours below it, once.
    let first = words(&memory_file(4096));
    let ours = handler_of_bus().sa_sigaction;
    set_handler(plain as libc::sighandler_t, 0);
    drop(first);
    assert_eq!(handler_of_bus().sa_sigaction, plain as libc::sighandler_t);
    let _again = words(&memory_file(4096));
    assert_eq!(handler_of_bus().sa_sigaction, plain as libc::sighandler_t);
    assert_ne!(ours, plain as libc::sighandler_t);
}
