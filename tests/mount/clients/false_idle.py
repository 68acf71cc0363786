"""Prompt and look, over and over, beside processes that close many files at once: ``false_idle.py AGENT ROUNDS``.

Prints how many looks said idle although the prompt's close had returned.
"""

import os
import sys
from pathlib import Path

BUSY_FILES = 100


def close_many(agent: str) -> None:
    """Open and close a hundred files at once, until the parent ends: their RELEASEs queue up before the prompt's."""
    parent = os.getppid()
    while os.getppid() == parent:
        descriptors = [os.open(f"{agent}/state", os.O_RDONLY) for _ in range(BUSY_FILES)]
        os.closerange(min(descriptors), max(descriptors) + 1)


def spawn_closer(agent: str) -> int:
    """Fork a process that closes many files; return its pid."""
    if pid := os.fork():
        return pid
    close_many(agent)
    os._exit(0)


def put(path: str, text: bytes) -> None:
    """Write as ``echo TEXT > PATH`` does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, text)
    os.close(descriptor)


def wait_idle(agent: str) -> None:
    """Wait until the agent is idle."""
    descriptor = os.open(f"{agent}/statewait", os.O_RDWR)
    os.write(descriptor, b"idle")
    os.read(descriptor, 100)
    os.close(descriptor)


def main(agent: str, rounds: int) -> None:
    """Run the rounds."""
    children = [spawn_closer(agent) for _ in range(2)]
    false_idles = 0
    for _ in range(rounds):
        put(f"{agent}/prompt", b"@fake hold\n")
        false_idles += Path(f"{agent}/state").read_bytes() == b"idle\n"
        put(f"{agent}/ctl", b"stop\n")
        wait_idle(agent)
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    sys.stdout.write(f"{false_idles}\n")


main(sys.argv[1], int(sys.argv[2]))
