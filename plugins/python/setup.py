"""Builds the wheel: the package with the extension, which cargo builds (or ONEJOURNAL_LIBRARY
names)."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

LIBRARY = "libonejournal_sqlite.so"
ROOT = Path(__file__).resolve().parents[2]


def built_library():
    """The path of the extension, built unless ONEJOURNAL_LIBRARY names it."""
    named = os.environ.get("ONEJOURNAL_LIBRARY")
    if named:
        return Path(named)
    command = ["cargo", "build", "--release", "-p", "onejournal-sqlite"]
    command.append("--message-format=json-render-diagnostics")
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for line in output.splitlines():
        for name in json.loads(line).get("filenames", []):
            if name.endswith(LIBRARY):
                return Path(name)
    raise SystemExit(f"cargo did not say where {LIBRARY} is")


class BuildWithLibrary(build_py):
    """Puts the extension beside the Python files."""

    def run(self):
        super().run()
        shutil.copy2(built_library(), Path(self.build_lib) / "onejournal" / LIBRARY)


class PlatformDistribution(Distribution):
    """Not the same on every platform, though setuptools builds no module."""

    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    """For any Python 3 of this platform: the extension knows SQLite, not Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
