"""Two writers change an agent's state while threads follow it: ``state_watchers.py AGENT READERS STEPS SEED END``.

Each reader loops over ``since SEQ``, one half on one open file, the other on a new one each time. In the end each
must come to know the last SEQ. Prints ``SEQ`` and how many lines the readers had in all, or what went wrong. With
the END ``gently`` the readers end before the process does, with ``abruptly`` it exits while they read, wait and write.
"""

import os
import random
import sys
import threading
import time
from pathlib import Path

LIMIT_S = 5.0
"""How long the last change may take to reach every reader: far longer than it does, far shorter than for ever."""


def put(path: str, text: str) -> None:
    """Write as ``echo TEXT > PATH`` does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def ask(descriptor: int, seq: int) -> tuple[str, int]:
    """Wait for what comes after *seq*."""
    os.write(descriptor, b"since %d" % seq)
    state, number = os.read(descriptor, 100).split()
    return state.decode(), int(number)


class Reader(threading.Thread):
    """Follows the state until ``is_over``."""

    is_over = False

    def __init__(self, path: str, *, reopens: bool) -> None:
        super().__init__()
        self._path = path
        self._reopens = reopens
        self.seen = [0]

    def run(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR)
        while (seq := ask(descriptor, self.seen[-1])[1]) and not Reader.is_over:
            self.seen.append(seq)
            if self._reopens:
                os.close(descriptor)
                descriptor = os.open(self._path, os.O_RDWR)


def change(agent: str, steps: int, rng: random.Random) -> None:
    """Ask and stop, in any order."""
    for _ in range(steps):
        match rng.randrange(4):
            case 0:
                put(f"{agent}/prompt", "hi\n")
            case 1:
                put(f"{agent}/prompt", "@fake hold\n")
            case 2:
                put(f"{agent}/ctl", "stop\n")
            case 3:
                put(f"{agent}/prompt", "/model\n")
        time.sleep(rng.choice((0, 0, 0.0005, 0.003)))


def rest(agent: str) -> int:
    """Bring the agent to rest; return the number of its last change."""
    while Path(f"{agent}/state").read_text(encoding="ascii") != "idle\n" or Path(f"{agent}/queue").read_bytes():
        put(f"{agent}/queue", "clear\n")
        put(f"{agent}/ctl", "stop\n")
    return ask(os.open(f"{agent}/statewait", os.O_RDWR), 0)[1]


def main(agent: str, count: int, steps: int, seed: int, end: str) -> None:
    """Run readers and writers, and judge."""
    rng = random.Random(seed)
    put(f"{agent}/prompt", "first\n")  # so that there is something after 0
    readers = [Reader(f"{agent}/statewait", reopens=bool(number % 2)) for number in range(count)]
    writers = [threading.Thread(target=change, args=(agent, steps, random.Random(rng.random()))) for _ in range(2)]
    for thread in (*readers, *writers):
        thread.start()
    for writer in writers:
        writer.join()
    last, limit = rest(agent), time.monotonic() + LIMIT_S
    while any(reader.seen[-1] != last for reader in readers) and time.monotonic() < limit:
        time.sleep(0.005)
    if end == "abruptly":
        os._exit(0)
    Reader.is_over = True
    put(f"{agent}/prompt", "and one more\n")
    for reader in readers:
        reader.join(LIMIT_S)
        if reader.seen[-1] != last or reader.seen != sorted(set(reader.seen)):
            sys.stdout.write(f"of {last}: {reader.seen}\n")
    sys.stdout.write(f"{last} {sum(len(reader.seen) for reader in readers)}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
