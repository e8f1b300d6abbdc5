//! The searches that `make test` runs, and their canaries.

mod canary;
mod crashes;
mod fault;
mod faults;
mod fuzz_regressions;
mod fuzz_seeds;
mod kernel;
mod model;
mod refusal;
mod regressions;
