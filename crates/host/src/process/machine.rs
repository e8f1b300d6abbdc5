//! Identifies this machine and its present boot, and tells whether one of its processes lives.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::os::fd::OwnedFd;

use crate::claim::published;

/// This machine, as other machines that share its disks know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Derived from the machine id (machine-id(5)), which cannot be computed back. Zeros: this
    /// machine has no machine id.
    pub id: [u8; 16],
    /// Id of the present boot; zeros: unknown.
    pub boot: [u8; 16],
    /// Its host name.
    pub name: String,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Machine {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Machine {
            id: machine_id().map_or([0; 16], derived),
            boot: parse_hex(&boot).unwrap_or_default(),
            name: name.trim().to_owned(),
        }
    }
}

/// The secret that distinguishes machines: the machine id, or the serial number of the board.
fn machine_id() -> Option<[u8; 16]> {
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    let read = |path: &str| fs::read_to_string(path).ok();
    let id = ids.into_iter().filter_map(read).find_map(|text| parse_hex(&text));
    id.or_else(|| read("/proc/device-tree/serial-number").map(|serial| of_serial(&serial)))
        .filter(|id| *id != [0; 16])
}

/// 16 bytes from 32 hexadecimal digits, with or without hyphens.
fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

fn of_serial(serial: &str) -> [u8; 16] {
    keyed([0; 16], serial.trim_end_matches(['\0', '\n']).as_bytes())
}

/// machine-id(5) asks programs not to show the id itself. So it is the key here, which the result
/// hides.
fn derived(id: [u8; 16]) -> [u8; 16] {
    keyed(id, b"onejournal.claim")
}

/// SipHash-2-4 of `text` with this key, once for each half of the result.
#[allow(deprecated)] // The hasher that is not deprecated may change between compilers.
fn keyed(key: [u8; 16], text: &[u8]) -> [u8; 16] {
    let key = u128::from_le_bytes(key);
    let (low, high) = (key as u64, (key >> 64) as u64); // its halves
    let mut bytes = [0; 16];
    for (number, half) in bytes.chunks_exact_mut(8).enumerate() {
        let mut hasher = std::hash::SipHasher::new_with_keys(low, high);
        hasher.write(text);
        hasher.write(&[u8::from(number != 0)]);
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    bytes
}

/// A sign of life of this process. Every process of the machine can see it, in every namespace,
/// until the value is dropped or the process ends.
#[derive(Debug)]
pub struct Living {
    name: u64,
    _published: OwnedFd,
}

impl Living {
    /// Publishes a sign of life under a random name.
    pub fn publish() -> io::Result<Living> {
        use std::hash::{BuildHasher, RandomState};
        let name = published::place_of(RandomState::new().hash_one(std::process::id()));
        Ok(Living { name, _published: published::publish(name)? })
    }

    /// The name of the sign.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Whether the process that published the sign with this name lives, on this machine and in
    /// this boot.
    pub fn is_seen(name: u64) -> io::Result<bool> {
        published::is_published(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_hidden_and_stays_the_same() {
        let id = parse_hex("3d1219c7c4c5404aaa1f6d2a48adfda4\n").expect("an id");
        assert_eq!(id[..3], [0x3d, 0x12, 0x19]);
        assert_eq!(parse_hex("3d1219c7-c4c5-404a-aa1f-6d2a48adfda4"), Some(id));
        for text in ["", "uninitialized", "3d12", "3d1219c7c4c5404aaa1f6d2a48adfdax"] {
            assert_eq!(parse_hex(text), None);
        }
        // Written to volumes: it must not change.
        let golden = [2, 105, 35, 62, 174, 147, 179, 101, 156, 146, 50, 84, 233, 40, 244, 252];
        assert_eq!(derived(id), golden);
        assert_ne!(of_serial("1000"), of_serial("1001"));
        assert_eq!(of_serial("1000\0"), of_serial("1000"));
    }

    #[test]
    fn a_process_is_seen_to_live_until_it_gives_no_sign() {
        let living = Living::publish().expect("publish");
        let name = living.name();
        assert!(Living::is_seen(name).expect("/proc/locks"));
        assert_ne!(Living::publish().expect("publish").name(), name);
        drop(living);
        assert!(!Living::is_seen(name).expect("/proc/locks"));
    }

    #[test]
    fn this_machine_is_itself() {
        assert_eq!(Machine::this(), Machine::this());
    }
}
