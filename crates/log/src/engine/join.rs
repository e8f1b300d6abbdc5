//! How a process joins a service: it opens the directory, and recovers the service if its shared
//! memory is new.

use std::path::Path;
use std::sync::Arc;

use super::recovery::recover_service;
use super::service::Service;
use crate::Result;
use crate::directory::options::Options;
use crate::directory::service_directory::ServiceDirectory;

impl Service {
    /// Joins the service in the directory `path`; see [`ServiceDirectory::join`].
    pub(crate) fn join(
        path: &Path,
        options: &Options,
        socket: Option<&Path>,
    ) -> Result<(Arc<ServiceDirectory>, Service)> {
        let recover = |directory: Arc<ServiceDirectory>| {
            recover_service(&Service::new(directory, options.full_wait))
        };
        let directory = ServiceDirectory::join(path, options, socket, recover)?;
        Ok((directory.clone(), Service::new(directory, options.full_wait)))
    }
}

impl ServiceDirectory {
    /// Joins the service again, after this process has left it.
    pub(crate) fn join_again(&self, options: &Options) -> Result<(Arc<ServiceDirectory>, Service)> {
        let recover = |directory: Arc<ServiceDirectory>| {
            recover_service(&Service::new(directory, options.full_wait))
        };
        let directory = self.join_root_again(options, recover)?;
        Ok((directory.clone(), Service::new(directory, options.full_wait)))
    }
}
