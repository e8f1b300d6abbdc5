//! A log in temporary directories, for the unit tests.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use crate::directory::service_directory::ServiceDirectory;
use crate::embedded::EmbeddedLog;
use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::host::StreamMeta;
use crate::{Log, Options};

pub(crate) struct TestDirectory {
    root: tempfile::TempDir,
    memory: tempfile::TempDir,
    options: Options,
}

impl TestDirectory {
    pub(crate) fn new() -> TestDirectory {
        let root = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let options =
            Options { memory: memory.path().to_owned(), pool_bytes: 1 << 20, ..Options::default() };
        TestDirectory { root, memory, options }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("log")
    }

    pub(crate) fn open(&self) -> TestLog {
        let backend = EmbeddedLog::open(&self.path(), &self.options).expect("open");
        let service = backend.service().clone();
        TestLog { log: Log::new(Box::new(backend)).expect("a log"), service }
    }

    /// Joins without the flush worker, which drains at times that a test cannot choose.
    pub(crate) fn join(&self) -> (Arc<ServiceDirectory>, Service) {
        Service::join(&self.path(), &self.options, None).expect("join")
    }

    /// How many logs have shared memory.
    pub(crate) fn memory_count(&self) -> usize {
        std::fs::read_dir(self.memory.path()).expect("memory").count()
    }

    /// Restarts the machine. Its memory is lost.
    pub(crate) fn restart(&self) {
        for entry in std::fs::read_dir(self.memory.path()).expect("memory") {
            std::fs::remove_dir_all(entry.expect("entry").path()).expect("remove");
        }
    }
}

/// A log, and the service inside it.
pub(crate) struct TestLog {
    log: Log,
    service: Arc<Service>,
}

impl TestLog {
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// The lane of a stream that exists.
    pub(crate) fn lane(&self, name: &str) -> Arc<Lane> {
        let name = name.parse().expect("a name");
        let meta = self.service.host.stream(&name).expect("look").expect("a stream");
        self.service.lane(&name, &meta).expect("lane")
    }
}

impl Deref for TestLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

/// The lane of a new stream.
pub(crate) fn make_lane(service: &Service, name: &str) -> Arc<Lane> {
    let name = name.parse().expect("a name");
    let meta = StreamMeta { id: 0, salt: 1, uid: 0, gid: 0, mode: 0o600, quota_bytes: 0 };
    let meta = service.host.create_stream(&name, &meta).expect("made");
    service.lane(&name, &meta).expect("lane")
}
