//! What users of a daemon may take.

/// What users may take. Root and the daemon's own user are not held to what is for each user.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time (1024).
    pub connection_count: usize,
    /// Connections of each user at a time (256).
    pub user_connection_count: usize,
    /// Chunks allocated to each user at a time; `None`: three quarters of the pool.
    pub user_chunk_count: Option<usize>,
    /// Streams that each user makes while the daemon runs (4096): their numbers are not given
    /// twice.
    pub user_stream_count: usize,
    /// Bytes of records that a new stream may keep; 0: any number. Its log files take more, because
    /// whole ones are freed: one file and 4 MiB at most.
    pub stream_bytes: u64,
    /// Unused streams that are kept open (256).
    pub idle_stream_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connection_count: 1024,
            user_connection_count: 256,
            user_chunk_count: None,
            user_stream_count: 4096,
            stream_bytes: 0,
            idle_stream_count: 256,
        }
    }
}
