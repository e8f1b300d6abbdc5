//! On whose behalf a request takes blocks of the volume: some are reserved for root
//! (`ext4::Spender`).
//!
//! A request names the user and the group of its sender. Pages that the kernel writes back (from a
//! shared mapping, or with a write-back cache) come without a user: they count as written by the
//! file's owner. The kernel accepted them without asking for blocks, so for an ordinary owner a
//! full volume shows at `fsync` or `close`.
//!
//! The rest is looked up in `/proc` when an ordinary sender finds no space: `CAP_SYS_RESOURCE`, and
//! membership of the group for which blocks are reserved. A process in execve(2) could keep this
//! look waiting, but the sender waits for its answer, and is not in execve(2).

use std::path::Path;

use ext4::{Spender, Volume, VolumeAs};
use fuse::Request;
use fuse::abi::{Opcode, WRITE_CACHE, WriteIn};

use crate::adapter::failure::{Failure, Outcome};
use crate::convert::inode_of;

const CAP_SYS_RESOURCE: u64 = 1 << 24;

/// Runs `serve` on behalf of the request's sender.
pub(super) fn spend(
    volume: &Volume,
    request: &Request<'_>,
    mut serve: impl FnMut(VolumeAs<&Volume>) -> Outcome,
) -> Outcome {
    let spender = spender_of(volume, request);
    let served = serve(volume.as_spender(spender));
    let is_no_space = matches!(served, Err(Failure::Volume(ext4::Error::NoSpace)));
    if is_no_space && spender == Spender::Ordinary && is_privileged(volume, request.header.pid) {
        return serve(volume.as_root());
    }
    served
}

fn spender_of(volume: &Volume, request: &Request<'_>) -> Spender {
    let owner = is_written_back(request).then(|| {
        let ino = inode_of(request.header.nodeid).ok()?;
        volume.peek_attr(ino).ok()
    });
    match owner.flatten() {
        Some(owner) => volume.spender(owner.uid, owner.gid),
        None => volume.spender(request.header.uid, request.header.gid),
    }
}

/// Whether the kernel writes back pages that it had collected.
pub(super) fn is_written_back(request: &Request<'_>) -> bool {
    let mut body = request.body;
    request.opcode == Some(Opcode::Write)
        && body.take::<WriteIn>().is_ok_and(|write| write.write_flags & WRITE_CACHE != 0)
}

/// The process may use reserved blocks although its user and group may not. Only where a user
/// number means the same as here: a capability that a container gives to itself does not count.
fn is_privileged(volume: &Volume, pid: u32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    if pid == 0 || namespace("self").is_none_or(|ours| namespace(&pid.to_string()) != Some(ours)) {
        return false;
    }
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    status.is_ok_and(|status| tells_privilege(&status, volume.reserved_group()))
}

fn tells_privilege(status: &str, reserved_group: Option<u32>) -> bool {
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let capabilities = u64::from_str_radix(field("CapEff:"), 16).unwrap_or_default();
    let groups = field("Groups:").split_whitespace().filter_map(|gid| gid.parse().ok());
    let mut is_in_group = groups.map(|gid: u32| reserved_group == Some(gid));
    capabilities & CAP_SYS_RESOURCE != 0 || is_in_group.any(|is_in| is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_and_group_are_found_in_the_status() {
        let status = "Uid:\t7\t7\t7\t7\nGroups:\t5 20 300 \nCapEff:\t0000000001000000\n";
        assert!(tells_privilege(status, None));
        let status = status.replace("0000000001000000", "0000000000ffffff");
        assert!(!tells_privilege(&status, None));
        assert!(!tells_privilege(&status, Some(30)));
        assert!(tells_privilege(&status, Some(300)));
        assert!(!tells_privilege("", Some(0)));
    }
}
