//! Scan and recovery of a crafted journal.
//!
//! These properties must hold, whatever the journal says:
//!
//! 1. A record counts as history only if its checksum is right, which is computed here a second
//!    time. Transactions follow each other by number, and records are inside the journal.
//! 2. A dry run reports the same as recovery, and writes nothing.
//! 3. A recovery that fails has changed nothing.
//! 4. A second recovery changes nothing at home, and finds nothing to do.
//! 5. If recovery is cut, with any sectors of its writes home, and run again, it ends in the same
//!    volume.

pub mod craft;
mod media;
mod stock;

use std::ops::RangeInclusive;

use journal::{JournalError, RecoverOptions, Recovery, Scan};

use crate::fuzz::input::Input;
use craft::Crafted;
use media::Machine;
use stock::UUID;

/// Runs the input, with the recovery options `options`.
pub fn run(input: &[u8], options: &RecoverOptions) {
    let mut input = Input::new(input);
    let discard_damaged = input.u8() & 1 == 1;
    let salt = input.u8();
    let crafted = craft::craft(&mut input);
    let options = RecoverOptions { discard_damaged, ..options.clone() };
    let scanned = check_scan(&crafted);
    check_dry_run(&crafted, &options);
    check_recovery(&crafted, &options, salt, scanned);
}

/// Checks property 1. Returns the numbers of transactions that recovery may find: the last one
/// counts only if its data in place have the checksums that it says.
fn check_scan(crafted: &Crafted) -> Option<RangeInclusive<usize>> {
    let machine = Machine::new(crafted);
    let scan = journal::scan(&machine.space(), &UUID).ok()?;
    check_records(crafted, &scan);
    assert!(machine.journal() == crafted.journal, "a scan wrote to the journal");
    let count = scan.records.len();
    let is_checked = scan.records.last().is_some_and(|record| !record.checks.is_empty());
    Some(count - usize::from(is_checked)..=count)
}

fn check_records(crafted: &Crafted, scan: &Scan) {
    for (index, record) in scan.records.iter().enumerate() {
        assert_eq!(record.tid.0, scan.header.tail_tid.0 + index as u64, "a gap in history");
        let start = usize::try_from(record.offset).expect("an offset in memory");
        let bytes = crafted.journal.get(start..start + record.payload_at + record.payload_bytes);
        let bytes = bytes.expect("the record lies inside of the journal");
        assert!(craft::is_certified(
            &crafted.journal[start..],
            bytes.len(),
            scan.header.incarnation
        ));
    }
}

/// Checks the first half of property 2.
fn check_dry_run(crafted: &Crafted, options: &RecoverOptions) {
    let dry = Machine::new(crafted);
    let real = Machine::new(crafted);
    let said = dry.recover(&RecoverOptions { dry_run: true, ..options.clone() });
    assert_eq!(told(&said), told(&real.recover(options)), "a dry run says something else");
    assert!(dry.home() == crafted.home && dry.journal() == crafted.journal, "a dry run wrote");
}

fn told(result: &Result<Recovery, JournalError>) -> Result<Recovery, String> {
    result.clone().map_err(|error| error.to_string())
}

/// Checks properties 3, 4 and 5.
fn check_recovery(
    crafted: &Crafted,
    options: &RecoverOptions,
    salt: u8,
    scanned: Option<RangeInclusive<usize>>,
) {
    let machine = Machine::new(crafted);
    let recovery = match machine.recover(options) {
        Ok(recovery) => recovery,
        Err(error) => {
            assert!(!matches!(error, JournalError::Io(_)), "nothing fails here, but: {error}");
            let same = machine.home() == crafted.home && machine.journal() == crafted.journal;
            assert!(same, "recovery failed, but wrote: {error}");
            return;
        }
    };
    let is_found = scanned.is_some_and(|counts| counts.contains(&recovery.transaction_count));
    assert!(is_found, "recovery and scan see other journals");
    let home = machine.home();
    let again = machine.power_up().recover(options).expect("it was recovered already");
    assert_eq!(again.replayed_blocks, 0, "something was left to replay");
    assert!(machine.home() == home, "a second recovery changed the volume");
    // The header is written last: before that the journal is as it was.
    let cut = Machine::new(&crafted.with_home(media::mixture(&crafted.home, &home, salt)));
    cut.recover(options).expect("a cut recovery can be run again");
    assert!(cut.home() == home, "a recovery that was cut ends in another volume");
}
