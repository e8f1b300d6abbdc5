//! The command `onejournal-bench`: devices, clients, programs, experiments.

mod clean_up;
mod clients;
mod device;
mod programs;
mod tpcc;
