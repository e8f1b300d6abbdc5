//! Counters that users see.

use serde::{Deserialize, Serialize};

/// Declares counters that a daemon tells its clients. First come the ones that a reply does not
/// have, then the numbers of the reply in their order, and last whether the subject failed.
macro_rules! counters {
    (
        $(#[$of:meta])*
        $Stat:ident { $($(#[$own_doc:meta])* $own:ident: $Own:ty,)* }
        { $($(#[$doc:meta])* $name:ident,)* }
        $(#[$failed_doc:meta])*
        is_aborted
    ) => {
        $(#[$of])*
        #[derive(Debug, Clone, Default, Serialize)]
        pub struct $Stat {
            $($(#[$own_doc])* pub $own: $Own,)*
            $($(#[$doc])* pub $name: u64,)*
            $(#[$failed_doc])*
            pub is_aborted: bool,
        }

        impl $Stat {
            /// The numbers of a reply.
            pub(crate) fn numbers(&self) -> Vec<u64> {
                vec![$(self.$name,)* u64::from(self.is_aborted)]
            }

            /// This with the numbers of a reply.
            pub(crate) fn with_numbers(mut self, numbers: &[u64]) -> $Stat {
                let mut numbers = numbers.iter().copied();
                let mut next = || numbers.next().unwrap_or(0);
                $(self.$name = next();)*
                self.is_aborted = next() != 0;
                self
            }
        }
    };
}

counters! {
    /// Counters of a service since its memory was made.
    LogStat {
        /// What a synced append survives: `power`, `reboot` or `process`.
        durability: &'static str,
        /// Whether lanes are on NVRAM.
        is_nvram: bool,
    } {
        /// Size of the pool in bytes.
        pool_bytes,
        /// Data bytes of a chunk.
        chunk_bytes,
        /// Bytes of the pool that are allocated now.
        lent_bytes,
        /// Appends that waited for a chunk.
        pool_wait_count,
        /// How long they waited, in ns.
        pool_wait_ns,
        /// Writes of the group log.
        group_commit_count,
        /// Streams that took part in them, in all.
        group_member_count,
        /// Bytes written to the group log.
        group_bytes,
        /// Drains of a lane that wrote something.
        drain_count,
        /// Bytes they wrote to log files.
        drain_bytes,
    }
    /// Whether the group log failed. It then accepts nothing any more.
    is_aborted
}

counters! {
    /// Counters of a stream.
    #[derive(Deserialize)]
    StreamStat {
        /// Its name.
        name: String,
    } {
        /// LSN of the first record that is kept.
        head,
        /// The log files hold the stream up to this LSN.
        drained,
        /// The stream is durable up to this LSN.
        durable,
        /// Records were appended up to this LSN.
        appended,
        /// Records appended since its memory was made.
        record_count,
        /// Bytes of their payloads.
        payload_bytes,
        /// Bytes its log files take.
        file_bytes,
    }
    /// Whether it accepts nothing any more after an error.
    is_aborted
}
