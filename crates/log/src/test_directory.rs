//! A log in temporary directories, for the unit tests.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use device::Durability;
use onejournal_testing::ServiceDirectories;

use crate::directory::service_directory::ServiceDirectory;
use crate::embedded::log::EmbeddedLog;
use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::host::StreamMeta;
use crate::{Log, Options};

pub(crate) struct TestDirectory {
    directories: ServiceDirectories,
    pub(crate) options: Options,
}

impl TestDirectory {
    pub(crate) fn new() -> TestDirectory {
        let directories = ServiceDirectories::new();
        let memory = directories.memory.path().to_owned();
        let options = Options { memory, pool_bytes: 1 << 20, ..Options::default() };
        TestDirectory { directories, options }
    }

    /// The same with lanes in what stands for NVRAM, if `is_nvram`.
    pub(crate) fn with(is_nvram: bool) -> TestDirectory {
        let mut test_dir = TestDirectory::new();
        test_dir.options.nvram = is_nvram.then(|| test_dir.directories.nvram());
        test_dir.options.durability = is_nvram.then_some(Durability::Process);
        test_dir
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directories.log()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directories.socket()
    }

    pub(crate) fn open(&self) -> TestLog {
        let backend = EmbeddedLog::open(&self.path(), &self.options).expect("open");
        let service = backend.service();
        TestLog { log: Log::new(Box::new(backend)).expect("a log"), service }
    }

    /// Joins without the flush worker, which drains at times that a test cannot choose.
    pub(crate) fn join(&self) -> (Arc<ServiceDirectory>, Service) {
        Service::join(&self.path(), &self.options, None).expect("join")
    }

    /// Where its shared memory is.
    pub(crate) fn memory(&self) -> &std::path::Path {
        self.directories.memory.path()
    }

    /// How many logs have shared memory.
    pub(crate) fn memory_count(&self) -> usize {
        let entries = std::fs::read_dir(self.directories.memory.path()).expect("memory");
        entries.filter(|entry| entry.as_ref().expect("an entry").file_name() != "nvram").count()
    }

    /// The machine restarts: memory is lost, but for NVRAM.
    pub(crate) fn reboot(&self) {
        self.directories.reboot();
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
