//! Where a simulated process may die: before it looks at or changes a shared word, and around each access to a
//! medium. In tests only; elsewhere nobody dies here.
//!
//! A death is a panic that nothing in between may catch. What lies in shared memory and on the media stays as it is;
//! destructors on the way must not touch either, as they would not run in a process that is killed.

/// One of the processes that take part.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) usize);

/// What a death unwinds with.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Death;

#[cfg(test)]
thread_local! {
    /// Whose code this thread runs.
    static RUNNING: std::cell::Cell<Option<Name>> = const { std::cell::Cell::new(None) };
    /// Who will die, after how many steps of its own.
    static DOOMED: std::cell::Cell<Option<(Name, u64)>> = const { std::cell::Cell::new(None) };
}

/// A moment at which the process that runs may die.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn step() {}

#[cfg(test)]
pub(crate) fn step() {
    if is_last_step() {
        die();
    }
}

/// Whether the process that runs dies now: the caller may leave something half done, and calls [`die`].
#[cfg(test)]
pub(crate) fn is_last_step() -> bool {
    let Some((name, left)) = DOOMED.get() else { return false };
    if RUNNING.get() != Some(name) || std::thread::panicking() {
        return false;
    }
    DOOMED.set((left > 0).then(|| (name, left - 1)));
    left == 0
}

#[cfg(test)]
pub(crate) fn die() -> ! {
    std::panic::resume_unwind(Box::new(Death))
}

/// Lets `name` die after `steps` of its own; `None`: nobody.
#[cfg(test)]
pub(crate) fn doom(doomed: Option<(Name, u64)>) {
    DOOMED.set(doomed);
}

/// Runs `f` as the process `name`; an error: it died.
#[cfg(test)]
pub(crate) fn run_as<T>(name: Name, f: impl FnOnce() -> T) -> Result<T, Death> {
    let before = RUNNING.replace(Some(name));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    RUNNING.set(before);
    done.map_err(|payload| match payload.downcast::<Death>() {
        Ok(_) => Death,
        Err(other) => std::panic::resume_unwind(other),
    })
}
