"""Wait until a file is readable: ``woken.py WAY FILE [WORDS]`` with select, poll or epoll; WORDS are written first.

Prints ``ready`` when it is about to wait, then the time at which it was woken, then what it read.
"""

import os
import select
import sys
import time
from collections.abc import Callable


def wait_select(descriptor: int, timeout_s: float) -> bool:
    """Wait with select(2); tell whether it is readable."""
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def wait_poll(descriptor: int, timeout_s: float) -> bool:
    """Wait with poll(2)."""
    polling = select.poll()
    polling.register(descriptor, select.POLLIN)
    return bool(polling.poll(timeout_s * 1000))


def wait_epoll(descriptor: int, timeout_s: float) -> bool:
    """Wait with epoll(7), edge-triggered."""
    with select.epoll() as polling:
        polling.register(descriptor, select.EPOLLIN | select.EPOLLET)
        return bool(polling.poll(timeout_s))


WAITS: dict[str, Callable[[int, float], bool]] = {"select": wait_select, "poll": wait_poll, "epoll": wait_epoll}


def main(way: str, path: str, words: str = "") -> None:
    """Wait once."""
    wait = WAITS[way]
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    if words:
        os.write(descriptor, words.encode())
    if wait(descriptor, 0.02):
        sys.exit("readable before anything happened")
    os.write(1, b"ready\n")
    woken = wait(descriptor, 10)
    os.write(1, f"{time.time() if woken else 'never'}\n".encode())
    os.write(1, os.read(descriptor, 4096))


if __name__ == "__main__":
    main(*sys.argv[1:])
