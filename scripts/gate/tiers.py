"""The tier of a run and its seed."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from pathlib import Path
from typing import NamedTuple

TIERS = ("gate", "long", "release")
TIER_VARIABLE = "ONEJOURNAL_TIER"
SEED_VARIABLE = "ONEJOURNAL_SEED"


class Seed(NamedTuple):
    """A number of 64 bits, and where it comes from."""

    value: int
    origin: str


def _of_tree(root: Path) -> Seed:
    """The same before and after a landing, because the tree is the same."""
    # The directory may belong to another user than root.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), "rev-parse", "HEAD^{tree}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        return Seed(int(ran.stdout.strip()[:16], 16), "git rev-parse HEAD^{tree}")
    except (OSError, subprocess.SubprocessError, ValueError):
        digest = hashlib.sha256((root / "Cargo.lock").read_bytes()).hexdigest()
        return Seed(int(digest[:16], 16), "the hash of Cargo.lock")


def seed(tier: str, root: Path) -> Seed:
    """One that is set wins; the gate's is the tree's; that of a longer search is random."""
    chosen = os.environ.get(SEED_VARIABLE)
    if chosen:
        return Seed(int(chosen), SEED_VARIABLE)
    return _of_tree(root) if tier == "gate" else Seed(random.getrandbits(64), "random")
