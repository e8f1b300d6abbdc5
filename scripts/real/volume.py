"""The file system under test: mounted, unmounted and checked by its own commands."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from pathlib import Path

SYSTEMS = ("onejournal", "ext4")
# Options with which a crash may leave later writes without earlier ones.
_WITHOUT_HISTORY = ("order=sync", "data=ordered", "data=selective", "data=writeback")
_CHECK_SECONDS = 3600
_SYSTEM_PATH = ":/usr/local/sbin:/usr/sbin:/sbin"


class Failed(Exception):
    """The file system cannot be mounted or unmounted, or a checker complains."""


@dataclasses.dataclass(frozen=True)
class Volume:
    """On `device`, mounted on `directory`."""

    system: str
    device: str
    directory: Path
    options: str = ""
    onejournal: str = "onejournal"

    @property
    def keeps_history(self) -> bool:
        """Whether a crash leaves a prefix of history, with nothing torn."""
        chosen = self.options.split(",")
        return self.system == "onejournal" and not any(
            option in chosen for option in _WITHOUT_HISTORY
        )

    def _run(self, words: list[str]) -> str:
        """Its output. A missing program is an `OSError`."""
        path = os.environ.get("PATH", "") + _SYSTEM_PATH
        try:
            ran = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", timeout=_CHECK_SECONDS, check=False,
                env={**os.environ, "PATH": path},
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(str(error)) from error
        if ran.returncode != 0:
            raise Failed(f"{' '.join(words)}: exit code {ran.returncode}: {ran.stdout.strip()}")
        return ran.stdout.strip()

    def mount(self) -> float:
        """Recovers what a crash left. Returns the seconds."""
        if os.path.ismount(self.directory):
            raise OSError(f"{self.directory} is mounted already: unmount it")
        options = ["-o", self.options] if self.options else []
        words = ["mount", "-t", "ext4", *options, self.device, str(self.directory)]
        if self.system == "onejournal":
            words = [self.onejournal, "mount", *options, self.device, str(self.directory)]
        begun = time.monotonic()
        self._run(words)
        return time.monotonic() - begun

    def unmount(self) -> None:
        """Closes the volume."""
        words = ["umount", str(self.directory)]
        self._run([self.onejournal, *words] if self.system == "onejournal" else words)

    def check(self) -> None:
        """Raises `Failed` if a checker finds something; the volume is closed."""
        if self.system == "onejournal":
            self._run([self.onejournal, "fsck", "-n", self.device])
        self._run(["e2fsck", "-fn", self.device])

    def versions(self) -> dict[str, str]:
        """The versions of the programs that are used."""
        found = {}
        if self.system == "onejournal":
            found["onejournal"] = self._run([self.onejournal, "--version"])
        first, *_ = self._run(["e2fsck", "-V"]).splitlines()
        found["e2fsck"] = first
        return found
