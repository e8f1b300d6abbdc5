//! What a client and the daemon send each other. `docs/format/log-protocol.md` has the table.

pub(crate) mod protocol;
pub(crate) mod transport;
