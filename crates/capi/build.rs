//! Gives the shared library its SONAME (scripts/install has the same number), and makes a link with
//! this name in the build tree: programs that are linked there look for it.

use std::os::unix::fs::symlink;
use std::path::Path;

const SONAME: &str = "libonejournal_log.so.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    // PROFILE/build/PACKAGE/out
    let profile = Path::new(&out).ancestors().nth(3).expect("a directory of cargo's");
    for dir in [profile.to_owned(), profile.join("deps")] {
        let link = dir.join(SONAME);
        if let Err(error) = symlink("libonejournal_log.so", &link)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            panic!("{}: {error}", link.display());
        }
    }
}
