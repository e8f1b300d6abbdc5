//! The crate `fault`: scopes of faults, and crashes of simulated processes.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use fault::crash::{ProcessId, crash_after, crash_point, run_process};
use fault::{carry, is, is_any, with};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Engine {
    Leaks,
    Lies,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Other {
    Leaks,
}

#[test]
fn a_fault_is_on_in_its_scope_only() {
    assert!(!is(Engine::Leaks) && !is_any());
    with(Engine::Leaks, || {
        assert!(is_any() && is(Engine::Leaks) && !is(Engine::Lies) && !is(Other::Leaks));
        with(Engine::Lies, || assert!(is(Engine::Lies) && !is(Engine::Leaks)));
        assert!(is(Engine::Leaks));
    });
    assert!(!is(Engine::Leaks));
}

#[test]
fn a_scope_ends_with_a_panic() {
    let panics = || with(Engine::Leaks, || panic!("expected"));
    catch_unwind(AssertUnwindSafe(panics)).expect_err("it panics");
    assert!(!is(Engine::Leaks));
}

#[test]
fn threads_of_the_engine_inherit_and_others_do_not() {
    let (inherits, does_not) = with(Engine::Leaks, || {
        let body = || {
            // And so do the threads that it starts.
            thread::spawn(carry(|| is(Engine::Leaks))).join().expect("thread")
        };
        (thread::spawn(carry(body)), thread::spawn(|| is(Engine::Leaks)))
    });
    assert!(inherits.join().expect("thread"), "it outlives the scope");
    assert!(!does_not.join().expect("thread"));
}

#[test]
fn the_named_process_crashes_at_the_named_point() {
    let passed = Cell::new(0);
    let walk = || {
        for _ in 0..5 {
            crash_point();
            passed.set(passed.get() + 1);
        }
    };
    crash_after(Some((ProcessId(1), 3)));
    run_process(ProcessId(0), walk).expect("another process");
    assert_eq!(passed.replace(0), 5);
    run_process(ProcessId(1), walk).expect_err("this one");
    assert_eq!(passed.replace(0), 3);
    run_process(ProcessId(1), walk).expect("once");
    walk();
}
