"""A target whose volume is a plain directory: `fake_target.py PORT DIRECTORY [OPTIONS]`.

`--early` acknowledges before the sync; with `--same-boot` each process has the same boot id. A
process that is killed loses nothing, so a test takes away what a disk should lose.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from real.target import serve  # noqa: E402  (the path comes first)
from real.volume import Volume  # noqa: E402


class Directory(Volume):
    """Neither mounted nor checked."""

    def mount(self) -> float:
        return 0.0

    def unmount(self) -> None:
        pass

    def check(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        return {}


if __name__ == "__main__":
    boot = "same" if "--same-boot" in sys.argv else uuid.uuid4().hex
    serve(("127.0.0.1", int(sys.argv[1])), Directory("onejournal", "", Path(sys.argv[2])),
          "--early" in sys.argv, boot)
