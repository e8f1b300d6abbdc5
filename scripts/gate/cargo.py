"""The one build of the gate, and the test programs that cargo says it made."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

LIBRARY_KINDS = {"lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"}


@dataclasses.dataclass(frozen=True)
class Package:
    """A member of the workspace."""

    name: str
    version: str
    directory: Path


@dataclasses.dataclass(frozen=True)
class Executable:
    """A program with tests in it."""

    path: Path
    package: Package
    # `lib`, `bin`, `test`, `example` or `bench`.
    kind: str
    target: str

    @property
    def label(self) -> str:
        """Its name in the output: the package, and the target if it is not the library."""
        return self.package.name if self.kind == "lib" else f"{self.package.name}/{self.target}"

    def selection(self) -> list[str]:
        """The options with which cargo runs it."""
        words = ["-p", self.package.name]
        return words + (["--lib"] if self.kind == "lib" else [f"--{self.kind}", self.target])

    def environment(self) -> dict[str, str]:
        """What cargo sets for it."""
        return {
            "CARGO": os.environ.get("CARGO", "cargo"),
            "CARGO_MANIFEST_DIR": str(self.package.directory),
            "CARGO_PKG_NAME": self.package.name,
            "CARGO_PKG_VERSION": self.package.version,
        }


@dataclasses.dataclass(frozen=True)
class Workspace:
    """What `cargo metadata` says."""

    packages: dict[str, Package]
    target: Path

    def named(self, name: str) -> Package | None:
        """The member with this name."""
        found = (package for package in self.packages.values() if package.name == name)
        return next(found, None)


def workspace(metadata: str) -> Workspace:
    """Reads the output of `cargo metadata --no-deps --format-version 1`."""
    values = json.loads(metadata)
    packages = {}
    for value in values["packages"]:
        packages[value["id"]] = Package(
            name=value["name"],
            version=value["version"],
            directory=Path(value["manifest_path"]).parent,
        )
    return Workspace(packages, Path(values["target_directory"]))


def executable(line: str, known: Workspace) -> Executable | None:
    """The test program in one of cargo's messages, if it is about one."""
    if not line.startswith("{"):
        return None
    message = json.loads(line)
    if message.get("reason") != "compiler-artifact" or not message.get("executable"):
        return None
    package = known.packages.get(message["package_id"])
    if package is None or not message["profile"]["test"]:
        return None
    kinds = message["target"]["kind"]
    kind = "lib" if LIBRARY_KINDS.intersection(kinds) else kinds[0]
    return Executable(Path(message["executable"]), package, kind, message["target"]["name"])


def build_command() -> list[str]:
    """Builds all test programs, and says where they are. Always of the whole workspace: fewer
    packages would have other features, and be built again."""
    words = ["cargo", "test", "--workspace", "--tests", "--no-run"]
    return [*words, "--message-format=json-render-diagnostics"]
