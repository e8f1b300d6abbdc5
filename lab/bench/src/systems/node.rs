//! One of several disks with the same system: that of one member of a cluster.

use super::{Running, Site, System};
use crate::error::Result;
use crate::lab::{Device, Lab};

/// The system of a member, which has the name of the system in the report.
pub struct Node<S> {
    pub system: S,
    pub number: usize,
}

impl<S: System + Clone + 'static> Node<S> {
    /// A system for each of `count` members.
    pub fn each_of(system: &S, count: usize) -> impl Iterator<Item = Box<dyn System>> {
        let node = |number| Node { system: system.clone(), number };
        (1..=count).map(move |number| Box::new(node(number)) as Box<dyn System>)
    }
}

impl<S: System> System for Node<S> {
    fn name(&self) -> String {
        self.system.name()
    }

    fn missing(&self) -> Option<String> {
        self.system.missing()
    }

    fn missing_on(&self, device: &Device) -> Option<String> {
        self.system.missing_on(device)
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let site = site.variant(&format!(", node {}", self.number));
        let mut running = self.system.set_up(lab, &site)?;
        running.name = self.name();
        Ok(running)
    }
}
