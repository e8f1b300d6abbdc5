//! Starts database servers for the judge and the laboratory. They say as which user a server runs
//! and in which mount namespace, and add the settings that only they need.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   program                    a process, from its start to its end
//!   etcd mariadb postgres      the arguments of servers and their clients
//!   notices
//! ```

pub mod etcd;
pub mod mariadb;
mod notices;
pub mod postgres;
mod program;

pub use notices::Notices;
pub use program::{Child, Host, Program, SIGNALS};
