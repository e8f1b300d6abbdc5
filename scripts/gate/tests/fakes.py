"""A fake test program that behaves like one of Rust's, and what cargo says about it."""

from __future__ import annotations

import json
from pathlib import Path

from gate.cargo import Executable, Package, Workspace
from gate.suite import Test

_PROGRAM = r"""#!/bin/sh
ok() { echo "test result: ok. $1 passed; 0 failed; $2 ignored; 0 measured; 0 filtered out"; }
case "$*" in
*--ignored*) printf 'part: test\nslow: test\n'; exit ;;
*--list*) printf 'passes: test\nfails: test\nhangs: test\nlacks: test\nkeeps: test\nnone: test\n'
    printf 'part: test\nslow: test\n'; exit ;;
"--exact part slow") echo "test part ... ignored, a process of another test"
    echo "test slow ... ignored, measures"; ok 0 2; exit ;;
esac
printf 'test %s ... ' "$1"
case "$1" in
fails) seq 100; echo "it is broken" >&2; exit 101 ;;
hangs) echo "begins to wait"; sleep 1000 & setsid sleep 1000 & wait ;;
lacks) echo "skipped: root: it wants more" >&2 ;;
keeps) echo evidence >"$ONEJOURNAL_KEEP/run"; exit 1 ;;
none) ok 0 0; exit ;;
esac
echo ok
ok 1 0
"""


def package(directory: Path, name: str = "some") -> Package:
    """A member of a workspace."""
    return Package(name, "0.1.0", directory)


def program(directory: Path, target: str = "it", kind: str = "test") -> Executable:
    """Writes the fake program."""
    path = directory / "program"
    path.write_text(_PROGRAM, encoding="utf-8")
    path.chmod(0o755)
    return Executable(path, package(directory), kind, target)


def test(name: str, owner: str = "some", target: str = "it", kind: str = "test") -> Test:
    """A test whose program does not exist."""
    return Test(Executable(Path("/nowhere"), package(Path("/"), owner), kind, target), name)


def metadata() -> str:
    """The output of `cargo metadata` for two packages."""
    def member(name: str, kind: str) -> dict[str, object]:
        return {
            "id": f"path+file:///w/{name}#0.1.0", "name": name, "version": "0.1.0",
            "manifest_path": f"/w/{name}/Cargo.toml", "targets": [{"kind": [kind]}],
        }
    members = [member("some", "lib"), member("other", "bin")]
    return json.dumps({"packages": members, "target_directory": "/w/target"})


def artifact(**changes: object) -> str:
    """A message of cargo about a test program."""
    message = {
        "reason": "compiler-artifact", "package_id": "path+file:///w/some#0.1.0",
        "target": {"kind": ["test"], "name": "it"}, "profile": {"test": True},
        "executable": "/w/target/debug/deps/it-0123456789abcdef",
    }
    return json.dumps({**message, **changes}, separators=(",", ":"))


def known() -> Workspace:
    """The workspace of `metadata`."""
    from gate import cargo
    return cargo.workspace(metadata())
