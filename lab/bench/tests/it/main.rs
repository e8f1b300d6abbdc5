//! The command `onejournal-bench`: devices, clients, programs, experiments.

mod clean_up;
mod clients;
mod device;
mod lzo1x;
mod programs;
mod tpcc;
