"""What readers that wait cost, how fast they are woken, and how fast an interrupted one is let go.

The yardstick is the same with pipes: as many processes that read one pipe, woken by the end of its writer.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.worlds import open_world
from tests.mount.world import World

BLOCKED = 2000
WOKEN = 1000
ROUNDS = 50
MASS_ROUNDS = 3
CPU_S = 10.0
SETTLE_S = 3.0

_READERS = """
import gc, os, sys, time
count, path = int(sys.argv[1]), sys.argv[2]
gc.disable()
if path == "pipe":
    held, writer = os.pipe()
results, result = os.pipe()
children = []
for n in range(count):
    pid = os.fork()
    if not pid:
        if path == "pipe":
            os.close(writer)
            descriptor = held
        else:
            descriptor = os.open(path + "/statewait", os.O_RDONLY)
        os.write(result, b"+")
        os.read(descriptor, 100)
        os.write(result, b"%20d" % time.monotonic_ns())
        os._exit(0)
    children.append(pid)
ready = 0
while ready < count: ready += len(os.read(results, count - ready))
time.sleep(0.02 if count == 1 else 2)
if path != "pipe":
    writer = os.open(path + "/prompt", os.O_WRONLY)
    os.write(writer, b"/temperature 0.5\\n")
began = time.monotonic_ns()
os.close(writer)
told = b""
while len(told) < 20 * count: told += os.read(results, 65536)
ended = sorted(int(told[at:at + 20]) for at in range(0, len(told), 20))
print((ended[-1] - began) / 1e6)
for pid in children: os.waitpid(pid, 0)
"""


def _wake_ms(count: int, path: str) -> float:
    done = subprocess.run(
        [sys.executable, "-SE", "-c", _READERS, str(count), path], capture_output=True, timeout=120, check=True
    )
    return float(done.stdout)


def _median_wake_ms(rounds: int, count: int, agent: str) -> tuple[float, float]:
    """Return the time until the last of *count* readers is awake, ours and a pipe's in turn."""
    ours, pipes = [], []
    for _ in range(rounds):
        ours.append(_wake_ms(count, agent))
        pipes.append(_wake_ms(count, "pipe"))
    return statistics.median(ours), statistics.median(pipes)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _time_ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def _times_ms(acts: list[Callable[[], None]]) -> list[float]:
    """Time each act, at arbitrary moments of a sweep; return the times in order."""
    times = []
    for act in acts:
        time.sleep(random.uniform(0, 0.2))
        times.append(_time_ms(act))
    return sorted(times)


def _ls_ms(world: World) -> list[float]:
    def ls() -> None:
        subprocess.run(["ls", f"{world.mount}/session"], stdout=subprocess.DEVNULL, timeout=60, check=True)

    return _times_ms([ls] * ROUNDS)


def _start_cats(world: World, path: str, count: int) -> list[int]:
    quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    cats = [os.posix_spawnp("cat", ["cat", path], world.env, file_actions=quiet) for _ in range(count)]
    world.out(f'until [ "$(sed -n s/blocked_readers=//p $m/status)" = {count} ]; do sleep 0.1; done', timeout_s=60)
    return cats


def _kill_ms(cats: list[int]) -> list[float]:
    """Kill a few; return how long each took to go."""

    def kill() -> None:
        pid = cats.pop()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    return _times_ms([kill] * ROUNDS)


def _measure_blocked(world: World, path: str) -> dict[str, tuple[float, float | None]]:
    assert world.daemon is not None
    pid = world.daemon.pid
    free_ls, cpu = _ls_ms(world), _cpu_s(pid)
    cats = _start_cats(world, path, BLOCKED)
    time.sleep(SETTLE_S)
    start_cpu, cpu = _cpu_s(pid) - cpu, _cpu_s(pid)
    time.sleep(CPU_S)
    cpu = (_cpu_s(pid) - cpu) / CPU_S * 100
    ls = _ls_ms(world)
    killed = _kill_ms(cats)
    for cat in cats:
        os.kill(cat, signal.SIGKILL)
    all_killed = _time_ms(lambda: [os.waitpid(cat, 0) for cat in cats])
    return {
        f"{BLOCKED} blocked readers: daemon, % of a core over {CPU_S:g} s": (cpu, None),
        f"{BLOCKED} blocked readers: daemon's CPU until all are known, ms a reader": (start_cpu / BLOCKED * 1e3, None),
        "ls of session beside them, ms, median (yardstick: beside none)": (
            statistics.median(ls),
            statistics.median(free_ls),
        ),
        "ls of session beside them, ms, longest": (ls[-1], free_ls[-1]),
        "kill -9 of one of them, ms, median": (statistics.median(killed), None),
        "kill -9 of one of them, ms, longest": (killed[-1], None),
        "kill -9 of all of them, ms": (all_killed, None),
    }


def measure() -> dict[str, tuple[float, float | None]]:
    """Return each measure, with its yardstick's where there is one."""
    with open_world("") as world:
        world.out("mkdir $m/session/s")
        agent = f"{world.mount}/session/s/agent/main"
        told: dict[str, tuple[float, float | None]] = {
            "wake of one reader, ms, median": _median_wake_ms(ROUNDS, 1, agent),
            f"wake of {WOKEN} readers, ms until the last": _median_wake_ms(MASS_ROUNDS, WOKEN, agent),
        }
        return told | _measure_blocked(world, f"{agent}/statewait")
