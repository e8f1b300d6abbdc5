"""Which tests depend on the way to the kernel, which ones run alone, and what else a tier runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .suite import Rule

_MOUNTS = "mounts through the crate that speaks to the kernel"
_COMMAND = "onejournal-cli"

# Run through /dev/fuse and through io_uring; all others through /dev/fuse only.
TRANSPORT: Sequence[Rule] = [
    Rule(_COMMAND, "fuse_library", _MOUNTS),
    Rule(_COMMAND, "mount_library", _MOUNTS),
    Rule(_COMMAND, "one_file", _MOUNTS),
    Rule(_COMMAND, "page_cache", "the kernel's pages are dropped by notifications"),
    Rule(_COMMAND, "write_requests", "sizes and numbers of requests"),
    Rule(_COMMAND, "fuse_limits", "sizes of requests"),
    Rule(_COMMAND, "unmount", "the end of a connection"),
    Rule(_COMMAND, "killed", "the end of a server"),
    Rule(_COMMAND, "order", "requests of several threads"),
    Rule(_COMMAND, "atomic", "large requests"),
    Rule(_COMMAND, "untorn", "large requests, also of memory that is not aligned"),
    Rule(_COMMAND, "fsx", "all kinds of requests, at random"),
    Rule(_COMMAND, "memory::the_daemon_keeps_to_its_limit_by_either_way_to_the_kernel",
         "memory of threads with rings"),
]

# No other test runs meanwhile.
_SETTING = "it sets enable_uring, which is the machine's"
EXCLUSIVE: Sequence[Rule] = [
    Rule(_COMMAND, "commands::the_way_to_the_kernel_can_be_chosen", _SETTING),
    Rule(_COMMAND, "fuse_library", _SETTING),
    Rule("onejournal-bench", "clean_up", _SETTING),
]

# Tests of one group do not overlap.
GROUPS: Mapping[str, Sequence[Rule]] = {}

MINUTE = 60

# Seconds on two cores, with nothing built before. `tests` of longer tiers: counts are fifteen
# times those of the gate, twice.
BUDGETS: Mapping[str, Mapping[str, int]] = {
    "gate": {"lints": 2 * MINUTE, "build": 5 * MINUTE, "tests": 6 * MINUTE, "rest": 2 * MINUTE},
    "long": {"lints": 2 * MINUTE, "build": 5 * MINUTE, "tests": 180 * MINUTE, "rest": 5 * MINUTE},
    "release": {
        "lints": 2 * MINUTE, "build": 5 * MINUTE, "tests": 180 * MINUTE, "rest": 5 * MINUTE,
    },
}

# The limit of one test; ONEJOURNAL_TEST_LIMIT changes it.
TEST_LIMIT_SECONDS: Mapping[str, int] = {
    "gate": 5 * MINUTE, "long": 60 * MINUTE, "release": 60 * MINUTE,
}


class Extra(NamedTuple):
    """A step that only longer tiers have. Exit code 77 says that it cannot run here."""

    name: str
    command: Sequence[str]
    budget: int
    environment: Mapping[str, str] = {}
    # Before the build: it prepares something for the tests.
    is_first: bool = False


_LONG: Sequence[Extra] = [
    # The documents' commands are tests. Pages whose servers are not installed are left out.
    Extra("servers for the documents", ["scripts/setup-databases"], 20 * MINUTE, is_first=True),
    Extra("languages for the documents", ["scripts/setup-languages"], 20 * MINUTE, is_first=True),
    Extra("killed runs", ["scripts/test-killed-run"], 40 * MINUTE),
    Extra("miri", ["scripts/test-miri"], 30 * MINUTE),
    Extra("power cuts of a virtual machine", ["scripts/power-cut-vm"], 40 * MINUTE,
          environment={"SEED": "{seed}"}),
]

_JUDGE = ["cargo", "run", "--release", "-p", "onejournal-judge", "--",
          "run", "--images", "10000", "--seed", "{seed}"]

_RELEASE: Sequence[Extra] = [
    Extra("a release build", ["make", "build"], 20 * MINUTE),
    Extra("10,000 images for the judge", _JUDGE, 10 * 60 * MINUTE),
    Extra("power cuts under databases", ["make", "test-databases"], 10 * 60 * MINUTE,
          environment={"CUTS": "1000", "SEED": "{seed}"}),
    Extra("kills in a virtual machine", ["scripts/killed-vm"], 40 * MINUTE),
    Extra("NVRAM in a virtual machine", ["scripts/nvram-vm"], 30 * MINUTE),
    Extra("volumes under systemd in a virtual machine", ["scripts/systemd-vm"], 60 * MINUTE,
          environment={"SEED": "{seed}"}),
    Extra("stacks of devices in a virtual machine", ["scripts/stack-vm"], 60 * MINUTE),
    Extra("kernels in virtual machines", ["scripts/kernel-matrix"], 12 * 60 * MINUTE),
    Extra("fuzzing journals", ["scripts/fuzz", "journal_reader", "1800"], 60 * MINUTE),
    Extra("fuzzing volumes", ["scripts/fuzz", "volume_open", "1800"], 60 * MINUTE),
]

EXTRAS: Mapping[str, Sequence[Extra]] = {
    "gate": [], "long": _LONG, "release": [*_LONG, *_RELEASE],
}
