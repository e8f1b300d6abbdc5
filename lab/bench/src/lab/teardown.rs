//! Steps that undo a setup, in reverse order: at the end, and also after an error, a panic or a
//! signal.

use crate::error::Result;

type Step = Box<dyn FnOnce() -> Result<()>>;

/// Steps that undo a setup. When dropped, it performs them, and prints each that fails.
#[derive(Default)]
pub struct Teardown {
    steps: Vec<(String, Step)>,
}

impl Teardown {
    /// Adds a step that is performed before all present ones.
    pub fn push(&mut self, what: impl Into<String>, step: impl FnOnce() -> Result<()> + 'static) {
        self.steps.push((what.into(), Box::new(step)));
    }

    /// Performs all steps, even if some fail. Returns the first failure.
    pub fn run(&mut self) -> Result<()> {
        let mut first = Ok(());
        while let Some((what, step)) = self.steps.pop() {
            if let Err(error) = step() {
                eprintln!("onejournal-bench: {what}: {error}");
                first = first.and(Err(error));
            }
        }
        first
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        // `run` has printed the error, and `drop` cannot return it.
        let _ = self.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn steps_are_done_backwards_whatever_happens() {
        let done = Rc::new(RefCell::new(Vec::new()));
        let push = |teardown: &mut Teardown, number: u32| {
            let done = done.clone();
            teardown.push("step", move || {
                done.borrow_mut().push(number);
                if number == 2 { Err(Error::other("two")) } else { Ok(()) }
            });
        };
        let mut teardown = Teardown::default();
        (1..=3).for_each(|number| push(&mut teardown, number));
        assert_eq!(teardown.run().unwrap_err().to_string(), "two");
        assert_eq!(*done.borrow(), [3, 2, 1]);
        let mut dropped = Teardown::default();
        push(&mut dropped, 4);
        drop(dropped);
        assert_eq!(*done.borrow(), [3, 2, 1, 4]);
    }
}
