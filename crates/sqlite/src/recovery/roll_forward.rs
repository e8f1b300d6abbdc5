//! Computes the last version of each page from the logged frames, and writes all of them to the
//! database.

use std::collections::BTreeMap;

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::frames::Frame;
use crate::format::page::page_at;
use crate::format::wal::FRAME_HEADER_BYTES;
use crate::frames::scan::Scan;
use crate::stream::live::Live;

/// A logged frame with its number.
pub type Logged<'a> = (u32, Frame<'a>);

/// Where the last version of each page comes from.
pub struct Plan {
    page_bytes: usize,
    /// The database's size after the last transaction.
    page_count: u32,
    /// The pages, by number.
    pub pages: BTreeMap<u32, Steps>,
}

/// Where a page comes from. Its base is a frame of the WAL file or the page in the database; these
/// logged frames are applied to that, in order.
#[derive(Default)]
pub struct Steps {
    file_frame: Option<u32>,
    logged: Vec<usize>,
}

impl Plan {
    /// Uses the frames that the file has, and the later frames of the log.
    pub fn new(live: &Live, logged: &[Logged<'_>], scan: Option<&Scan>) -> Plan {
        let first = logged.first().map_or(u32::MAX, |(number, _)| *number);
        let mut plan =
            Plan { page_bytes: live.base.page_bytes, page_count: 0, pages: BTreeMap::new() };
        let in_file = scan.map_or(&[][..], |scan| &scan.frames[..scan.committed() as usize]);
        for (frame, number) in in_file.iter().zip(1..) {
            // A frame that is in the file counts more than how it was logged.
            let steps = Steps { file_frame: Some(number), logged: Vec::new() };
            plan.pages.insert(frame.page, steps);
            plan.end(frame.commit_pages);
        }
        let known = u32::try_from(in_file.len()).expect("counted with 32 bits");
        // Without frames in a file, the database has those before.
        debug_assert!(scan.is_none() || logged.is_empty() || known + 1 >= first);
        for (index, (number, frame)) in logged.iter().enumerate() {
            if *number > known {
                plan.pages.entry(frame.page).or_default().logged.push(index);
                plan.end(frame.commit_pages);
            }
        }
        plan
    }

    /// After a frame with these `commit_pages`. What comes back of the pages that the database does
    /// not have any more was logged from zeros (`versions`).
    fn end(&mut self, commit_pages: u32) {
        if commit_pages > 0 {
            self.page_count = commit_pages;
            self.pages.split_off(&commit_pages.saturating_add(1));
        }
    }
}

impl Steps {
    /// The frame with the last version of the page, if the log has it.
    pub fn last<'a>(&self, logged: &'a [Logged<'a>]) -> Option<&'a Frame<'a>> {
        if faults::is(Fault::AppliesBackwards) {
            return None;
        }
        self.logged.last().map(|index| &logged[*index].1)
    }

    /// The last version of the page.
    pub fn version(
        &self,
        page: u32,
        plan: &Plan,
        logged: &[Logged<'_>],
        wal: Option<(&Real, &Scan)>,
        main: &Real,
    ) -> Result<Vec<u8>, Failure> {
        let mut version = vec![0; plan.page_bytes];
        match (self.file_frame, wal) {
            (Some(number), Some((wal, scan))) => {
                let at = scan.header.frame_at(number) + FRAME_HEADER_BYTES as u64;
                wal.read(at, &mut version)?;
            }
            _ => {
                main.read(page_at(page, plan.page_bytes), &mut version)?;
            }
        }
        let mut order = self.logged.clone();
        if faults::is(Fault::AppliesBackwards) {
            order.reverse();
        }
        for index in &order {
            let frame = &logged[*index].1;
            crate::format::page::apply(frame.form, frame.bytes, &mut version)?;
        }
        Ok(version)
    }
}

/// Writes all pages to the database, durably, and empties the WAL.
pub fn roll_forward(
    live: &Live,
    logged: &[Logged<'_>],
    wal: Option<(&Real, &Scan)>,
    main: &Real,
) -> Result<(), Failure> {
    let is_same = |scan: &Scan| scan.header.salts == live.base.salts;
    let source = wal.filter(|(_, scan)| is_same(scan));
    let plan = Plan::new(live, logged, source.map(|(_, scan)| scan));
    for (page, steps) in &plan.pages {
        let version = steps.version(*page, &plan, logged, source, main)?;
        main.write(page_at(*page, plan.page_bytes), &version)?;
    }
    if plan.page_count > 0 {
        main.truncate(u64::from(plan.page_count) * plan.page_bytes as u64)?;
        main.sync()?;
    }
    match wal {
        Some((wal, _)) => wal.truncate(0),
        None => Ok(()),
    }
}
