"""Our files against the bare filesystem, the same client on both in turn."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from bench.worlds import open_bare, open_world

CLIENT = Path(__file__).with_name("fs_client.py")
RUNS = 5
ROUNDS = 1000


def _time(*paths: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(CLIENT), *paths, str(ROUNDS)], capture_output=True, timeout=120, check=True
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def measure() -> dict[str, tuple[float, float | None]]:
    """Return microseconds an operation, ours and bare, medians of RUNS."""
    ours, bare = [], []
    with open_world("") as world, open_bare() as other:
        world.out("mkdir $m/session/s")
        session = f"{world.mount}/session/s"
        for _ in range(RUNS):
            ours.append(_time(f"{world.mount}/help", f"{session}/title", session))
            bare.append(_time(f"{other}/file", f"{other}/file", str(other)))
    return {
        name: (statistics.median(run[name] for run in ours), statistics.median(run[name] for run in bare))
        for name in ours[0]
    }
