//! How a process joins a service: it opens the directory, and recovers the service if its shared memory is new.

use std::path::Path;
use std::sync::Arc;

use super::recovery::recover_service;
use super::service::Service;
use crate::Result;
use crate::directory::options::Options;
use crate::directory::service_directory::Place;

impl Service {
    /// Joins the service in the directory `path`; see [`Place::join`].
    pub(crate) fn join(
        path: &Path,
        options: &Options,
        socket: Option<&Path>,
    ) -> Result<(Arc<Place>, Service)> {
        let service = |place| Service::new(place, options.full_wait);
        let place = Place::join(path, options, socket, |place| recover_service(&service(place)))?;
        Ok((place.clone(), service(place)))
    }
}
