"""What a daemon costs that has nothing to do."""

import os
import time
from pathlib import Path

from bench.worlds import open_world

IDLE_S = 5.0
AGENTS = 200


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def measure() -> dict[str, tuple[float, float | None]]:
    """Return CPU and memory of an idle daemon and of an idle agent."""
    with open_world("") as world:
        assert world.daemon is not None
        pid = world.daemon.pid
        world.out("ls -lR $m > /dev/null")
        began = _cpu_s(pid)
        time.sleep(IDLE_S)
        cpu = (_cpu_s(pid) - began) / IDLE_S * 100
        alone = _resident_kib(pid)
        world.out(f"mkdir $m/session/s; cd $m/session/s/agent; for n in $(seq {AGENTS}); do mkdir a$n; done")
        world.out("ls -lR $m/session > /dev/null; cat $m/session/s/agent/*/chat")
        each = (_resident_kib(pid) - alone) / AGENTS
    return {
        f"idle daemon, % of a core over {IDLE_S:g} s": (cpu, None),
        "idle daemon, MiB resident": (alone / 1024, None),
        f"idle agent, KiB resident (mean of {AGENTS})": (each, None),
    }
