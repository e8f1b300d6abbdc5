"""A caller of a keeper whose body starts a trap, for tests that kill it: python3 -m gate.tests.kept

The words of the command line are those of `gate.tests.trap`; `private` puts the trap into a mount
namespace of its own, as tests do. It prints `trapped`. With `end` the body ends then. With `plain`
the run has no namespaces, and a daemon instead of the trap, because the mount would be the
machine's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from unittest import mock

from gate import keeper
from gate.room import Room


def _body(_room: Room) -> int:
    words = sys.argv[1:]
    if "plain" in words:
        subprocess.run(["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & echo trapped"])
        time.sleep(1000)
    outside = ["unshare", "-m", "--propagation", "private"] if "private" in words else []
    trap = [sys.executable, "-m", "gate.tests.trap", f"{os.environ['TMPDIR']}/mounted", *words]
    with subprocess.Popen([*outside, *trap], stdout=subprocess.PIPE) as process:
        assert process.stdout
        print(process.stdout.readline().decode(), end="", flush=True)
        if "end" in words:
            os._exit(5)
        time.sleep(1000)
    return 0


if __name__ == "__main__":
    if "plain" in sys.argv:
        mock.patch.object(keeper, "why_no_namespaces", return_value="it is asked for").start()
    try:
        sys.exit(keeper.run_kept(_body))
    except keeper.Stopped as stopped:
        sys.exit(128 + stopped.number)
