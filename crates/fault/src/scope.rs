//! Which fault is switched on, and for which threads.

use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

/// A value that names a fault.
pub trait Fault: Any + Copy + PartialEq + Send + Sync {}

impl<F: Any + Copy + PartialEq + Send + Sync> Fault for F {}

type Switched = Arc<dyn Any + Send + Sync>;

fn assert_can_fail() {
    if !crate::CAN_FAIL {
        panic!("this build has no faults: build with debug assertions");
    }
}

thread_local! {
    /// The fault that is on for this thread.
    static HERE: RefCell<Option<Switched>> = const { RefCell::new(None) };
}

/// The fault of a process that is faulty from its start to its end.
static EVERYWHERE: OnceLock<Switched> = OnceLock::new();

/// Whether `fault` is on for this thread.
pub fn is<F: Fault>(fault: F) -> bool {
    let is_it = |switched: &Switched| switched.downcast_ref::<F>() == Some(&fault);
    // At the end of a process a thread has no values of its own any more.
    let is_here = HERE.try_with(|here| here.borrow().as_ref().map(is_it));
    is_here.ok().flatten().unwrap_or_else(|| EVERYWHERE.get().is_some_and(is_it))
}

/// Whether a fault is on for this thread.
pub fn is_any() -> bool {
    HERE.with_borrow(|here| here.is_some()) || EVERYWHERE.get().is_some()
}

/// Switches `fault` on while `f` runs, in this thread and in the threads that inherit from it. An
/// inner scope replaces the outer one.
///
/// # Panics
///
/// In a build without faults: a canary would pass for the wrong reason, or not at all.
pub fn with<F: Fault, T>(fault: F, f: impl FnOnce() -> T) -> T {
    assert_can_fail();
    Inherited(Some(Arc::new(fault))).run(f)
}

/// Switches `fault` on for all threads of this process, permanently. Only for a process that a test
/// has started for that purpose. Panics if a fault is switched on for the process already.
pub fn for_process<F: Fault>(fault: F) {
    assert_can_fail();
    assert!(EVERYWHERE.set(Arc::new(fault)).is_ok(), "the process has a fault already");
}

/// The body of a thread, which inherits the fault of the thread that calls this.
pub fn carry<T>(body: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let inherited = inherited();
    move || inherited.run(body)
}

/// The fault that is on for this thread, for a thread that it starts.
pub fn inherited() -> Inherited {
    Inherited(HERE.with_borrow(Clone::clone))
}

/// See [`inherited`].
pub struct Inherited(Option<Switched>);

impl Inherited {
    /// Runs `f` with this fault switched on. Afterwards, also after a panic, the previous fault is
    /// restored.
    pub fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let _restored = Restored(HERE.replace(self.0));
        f()
    }
}

struct Restored(Option<Switched>);

impl Drop for Restored {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}
