//! Where the daemon's socket is: a directory that was opened once, and a name in it.
//!
//! By its path, another user who may rename a directory above it could have a socket made
//! elsewhere, and a socket of the same name there removed, or opened to everybody.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use host::{above_standard, link_to, open_parent};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

/// The place of a socket.
pub(crate) struct Place {
    directory: OwnedFd,
    name: OsString,
}

/// The kind of file at a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Socket,
    Other,
    Nothing,
}

impl Place {
    /// The place at `path`. Its directory must exist.
    pub(crate) fn of(path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        Ok(Place { directory: open_parent(path)?, name })
    }

    /// The kind of file there; a symbolic link is not followed.
    pub(crate) fn found(&self) -> io::Result<Found> {
        match rustix::fs::statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if is_socket(&found) => Ok(Found::Socket),
            Ok(_) => Ok(Found::Other),
            Err(Errno::NOENT) => Ok(Found::Nothing),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives `socket` this place. The kernel takes a path only: that of the open directory.
    pub(crate) fn bind(&self, socket: &OwnedFd) -> io::Result<()> {
        let path = link_to(&self.directory).join(&self.name);
        Ok(rustix::net::bind(socket, &SocketAddrUnix::new(path)?)?)
    }

    /// Removes what is there.
    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, &*self.name, AtFlags::empty())?)
    }

    /// Gives the socket there the permissions `mode`. An error if there is no socket of this user.
    pub(crate) fn permit(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.directory, &*self.name, flags, Mode::empty());
        let socket = above_standard(open)?;
        let found = rustix::fs::fstat(&socket)?;
        if !is_socket(&found) || found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "was replaced"));
        }
        // An open file of this kind has no mode that could be changed through it.
        Ok(rustix::fs::chmod(link_to(&socket), Mode::from_raw_mode(mode))?)
    }
}

fn is_socket(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Socket
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::wire::transport;

    #[test]
    fn regression_a_socket_elsewhere_is_neither_made_nor_removed_nor_opened_to_everybody() {
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        let bind = |path: &str| {
            fs::create_dir_all(at(path).parent().expect("one")).expect("made");
            let listener = UnixListener::bind(at(path)).expect("bound");
            fs::set_permissions(at(path), fs::Permissions::from_mode(0o600)).expect("mode");
            listener
        };
        let mode = |path: &str| fs::metadata(at(path)).expect("there").permissions().mode() & 0o777;
        let _listeners = (bind("theirs/socket"), bind("other/socket"));
        let place = Place::of(&at("theirs/socket")).expect("open");
        assert_eq!(place.found().expect("asked"), Found::Socket);
        fs::rename(at("theirs"), at("moved")).expect("renamed");
        symlink(at("other"), at("theirs")).expect("link");
        place.permit(0o666).expect("where it is");
        assert_eq!((mode("moved/socket"), mode("other/socket")), (0o666, 0o600));
        place.remove().expect("removed");
        assert_eq!(place.found().expect("asked"), Found::Nothing);
        fs::remove_file(at("other/socket")).expect("removed");
        place.bind(&transport::socket().expect("socket")).expect("bound");
        assert_eq!(place.found().expect("asked"), Found::Socket);
        assert!(!at("other/socket").exists(), "nothing is made there");
        place.remove().expect("removed");
        let _listener = bind("other/socket");
        assert_eq!(mode("other/socket"), 0o600, "it is there");
        // A link in its place is not followed.
        symlink(at("other/socket"), at("moved/socket")).expect("link");
        assert_eq!(place.found().expect("asked"), Found::Other);
        assert!(place.permit(0o666).is_err());
        assert_eq!(mode("other/socket"), 0o600);
    }
}
