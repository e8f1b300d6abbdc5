//! Decides whether a claimed volume may be opened.
//!
//! While a volume is open for writing, its claim says which machine, boot and process has it open.
//! Locks exclude two users of one machine ([`device::Disk`]). The claim is for machines that share
//! a disk, for a disk that was moved after a crash, and for users that the locks do not find.
//!
//! | the volume was not closed, and its claim is of | |
//! |---|---|
//! | no user (the crash came between the two feature bits) | recovered |
//! | this boot, a process that has ended | recovered |
//! | an earlier boot of this machine | recovered |
//! | this boot, a process that lives | refused; `take_over` overrides |
//! | another machine | refused; `take_over` overrides |
//! | an unreadable claim | refused; `take_over` overrides |
//!
//! The boot is compared before the machine, because containers on one kernel have machine ids of
//! their own. Two machines without an id count as one.
//!
//! A claim is written and cleared together with the inner feature bit, so it costs no write of its
//! own. Between reading a claim and writing one, there is a moment in which two machines can both
//! find the volume free. Heartbeats close this gap: with them the claim is written first, and read
//! again after a time in which another machine that did the same would have become visible. A claim
//! with heartbeats is watched for that time before it counts as dead, in every case, unless its
//! process is known to have ended.

use std::sync::Arc;
use std::time::Duration;

use device::BlockDevice;

use super::feature_bits::FeatureBits;
use super::found::{FoundVolume, find};
use crate::layout::claim::Claim;
use crate::{Error, Holder, Result};

/// The user that opens a volume.
#[derive(Clone)]
pub struct Claimant {
    /// The claim that is written. Its sequence continues from here.
    pub claim: Claim,
    /// Whether the process that published the sign of life with this name lives, on this machine
    /// and in this boot.
    pub lives: Arc<dyn Fn(u64) -> bool + Send + Sync>,
    /// Returns after that time.
    pub wait: Arc<dyn Fn(Duration) + Send + Sync>,
    /// Opens the volume in spite of another user's claim.
    pub take_over: bool,
}

/// The owner of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Nobodys,
    /// A process of this boot that has ended.
    Gone,
    /// A process of this boot that lives.
    Living,
    /// An earlier boot of this machine.
    Earlier,
    /// Another machine.
    Foreign,
    /// Unreadable.
    Unreadable,
}

impl Claimant {
    fn whose(&self, found: &std::result::Result<Option<Claim>, ()>) -> Whose {
        let claim = match found {
            Err(()) => return Whose::Unreadable,
            Ok(None) => return Whose::Nobodys,
            Ok(Some(claim)) => claim,
        };
        let is_this_boot = claim.boot_id == self.claim.boot_id && claim.boot_id != [0; 16];
        match is_this_boot {
            true if (self.lives)(claim.living) => Whose::Living,
            true => Whose::Gone,
            false if claim.machine_id == self.claim.machine_id => Whose::Earlier,
            false => Whose::Foreign,
        }
    }
}

/// Refuses a volume that another user may have open. Writes nothing.
pub fn check_claim(device: &Arc<dyn BlockDevice>, claimant: &Claimant) -> Result<()> {
    check(&find(device)?, claimant)
}

/// The same for a volume that was found.
pub(crate) fn check(found: &FoundVolume, claimant: &Claimant) -> Result<()> {
    let whose = claimant.whose(&found.area.claim);
    let claim = found.area.claim.as_ref().ok().and_then(Option::as_ref);
    if found.area.has_our_bits && !claimant.take_over {
        let refused = |by, why: String| Err(Error::Claimed { by, why, may_take_over: true });
        match (whose, claim) {
            (Whose::Living, Some(claim)) => {
                let (process, since) = (claim.process, since(claim));
                let why = format!("process {process} of this machine has it open{since}");
                refused(Holder::ThisMachine, why)?;
            }
            (Whose::Foreign, Some(claim)) => {
                let why = format!("{} has it open, or has not closed it", describe(claim));
                refused(Holder::OtherMachine, why)?;
            }
            (Whose::Unreadable, _) => refused(Holder::Unknown, "its claim cannot be read".into())?,
            _ => {}
        }
    }
    match claim {
        Some(claim) if claim.heartbeat_s > 0 && whose != Whose::Gone => {
            let by =
                if whose == Whose::Living { Holder::ThisMachine } else { Holder::OtherMachine };
            watch(&found.feature_bits(), claim, claimant, by)
        }
        _ => Ok(()),
    }
}

/// Waits for a heartbeat.
fn watch(feature_bits: &FeatureBits, claim: &Claim, claimant: &Claimant, by: Holder) -> Result<()> {
    (claimant.wait)(patience(claim.heartbeat_s));
    if feature_bits.claim()?.as_ref() == Ok(&Some(claim.clone())) {
        return Ok(());
    }
    Err(beaten(by, format!("{} has it open: its heartbeats go on", describe(claim))))
}

/// The error of a claim that no option overrides.
pub(super) fn beaten(by: Holder, why: String) -> Error {
    Error::Claimed { by, why, may_take_over: false }
}

/// With heartbeats: claims the volume durably, and waits until every other user would have noticed.
pub(crate) fn take(feature_bits: &FeatureBits, claimant: &Claimant) -> Result<()> {
    if claimant.claim.heartbeat_s == 0 {
        return Ok(());
    }
    feature_bits.write_claim(&claimant.claim)?;
    (claimant.wait)(patience(claimant.claim.heartbeat_s));
    match feature_bits.claim()? {
        Ok(Some(claim)) if claim == claimant.claim => Ok(()),
        Ok(Some(other)) => {
            let why = format!("{} took it in this moment", describe(&other));
            Err(beaten(Holder::OtherMachine, why))
        }
        _ => {
            let why = "another machine has closed it in this moment";
            Err(beaten(Holder::OtherMachine, why.into()))
        }
    }
}

/// Longer than two heartbeats, because one may just have been missed.
fn patience(heartbeat_s: u32) -> Duration {
    Duration::from_secs(u64::from(heartbeat_s) * 2 + 1)
}

/// The machine and process of a claim, and its time.
pub(super) fn describe(claim: &Claim) -> String {
    let id: String = claim.machine_id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = match claim.host_name.as_str() {
        "" => "without a name",
        name => name,
    };
    // It comes from the volume, which anybody may have made.
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    format!("process {} of machine {name} ({id}){}", claim.process, since(claim))
}

fn since(claim: &Claim) -> String {
    let (days, seconds) = (claim.claimed_s / 86_400, claim.claimed_s % 86_400);
    let Some((year, month, day)) = date(days) else { return String::new() };
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!(", since {year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Year, month and day of a number of days after 1970-01-01; `None` after the year 9999.
fn date(days: u64) -> Option<(u64, u64, u64)> {
    let (mut year, mut days) = (1970, days);
    let is_each = |year: u64, years: u64| year.is_multiple_of(years);
    let is_leap = |year| is_each(year, 4) && (!is_each(year, 100) || is_each(year, 400));
    while year <= 9999 {
        let february = if is_leap(year) { 29 } else { 28 };
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, length) in (1..).zip(months) {
            if days < length {
                return Some((year, month, days + 1));
            }
            days -= length;
        }
        year += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(machine: u8, boot: u8, living: u64) -> Claim {
        Claim {
            machine_id: [machine; 16],
            boot_id: [boot; 16],
            process: 1,
            heartbeat_s: 0,
            living,
            claimed_s: 0,
            sequence: 0,
            host_name: "a\u{1b}b".into(),
        }
    }

    #[test]
    fn every_claim_is_somebodys() {
        const ALIVE: u64 = 7;
        let whose = |me: (u8, u8), found| {
            let claimant = Claimant {
                claim: claim(me.0, me.1, 1),
                lives: Arc::new(|name| name == ALIVE),
                wait: Arc::new(|_| {}),
                take_over: false,
            };
            claimant.whose(&found)
        };
        let of = |machine, boot, living| Ok(Some(claim(machine, boot, living)));
        assert_eq!(whose((1, 1), Ok(None)), Whose::Nobodys);
        assert_eq!(whose((1, 1), Err(())), Whose::Unreadable);
        // (own machine and boot, those of the claim, of a living process, of a dead one)
        let table = [
            ((1, 1), (1, 1), Whose::Living, Whose::Gone),
            ((1, 1), (2, 1), Whose::Living, Whose::Gone), // two containers
            ((0, 1), (2, 1), Whose::Living, Whose::Gone),
            ((1, 2), (1, 1), Whose::Earlier, Whose::Earlier),
            ((0, 2), (0, 1), Whose::Earlier, Whose::Earlier),
            ((1, 0), (1, 0), Whose::Earlier, Whose::Earlier), // boots unknown
            ((1, 2), (2, 1), Whose::Foreign, Whose::Foreign),
            ((0, 2), (2, 1), Whose::Foreign, Whose::Foreign),
            ((1, 2), (0, 1), Whose::Foreign, Whose::Foreign),
            ((1, 0), (2, 0), Whose::Foreign, Whose::Foreign),
        ];
        for (me, (machine, boot), of_living, of_dead) in table {
            assert_eq!(whose(me, of(machine, boot, ALIVE)), of_living, "{me:?} {machine} {boot}");
            assert_eq!(whose(me, of(machine, boot, 8)), of_dead, "{me:?} {machine} {boot}");
        }
    }

    #[test]
    fn a_claim_is_described_without_what_a_terminal_would_obey() {
        let claim = Claim { claimed_s: 1_709_210_096, ..claim(0xAB, 1, 1) };
        let expected = "process 1 of machine ab (abababab), since 2024-02-29 12:34 UTC";
        assert_eq!(describe(&claim), expected);
        assert!(!describe(&Claim { claimed_s: u64::MAX, ..claim }).contains("since"));
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), Some((1970, 1, 1)));
        assert_eq!(date(11_016), Some((2000, 2, 29)));
        assert_eq!(date(20_779), Some((2026, 11, 22)));
        assert_eq!(date(2_932_896), Some((9999, 12, 31)));
        assert_eq!(date(2_932_897), None);
    }
}
