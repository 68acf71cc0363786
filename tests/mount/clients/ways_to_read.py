"""Read files in one of many ways: ``ways_to_read.py WAY SCRATCH FILE...`` writes to stdout what it got."""

import mmap
import os
import select
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

Way = Callable[[str, str], bytes]


def in_text(path: str, _: str) -> bytes:
    """Go through the text layer."""
    with open(path, encoding="utf-8") as file:
        return file.read().encode()


def by_lines(path: str, _: str) -> bytes:
    """Read line by line."""
    with open(path, "rb") as file:
        return b"".join(iter(file.readline, b""))


def by_pieces(path: str, _: str) -> bytes:
    """Read without a buffer, some bytes each time."""
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(50), b""))


def backwards(path: str, _: str) -> bytes:
    """Seek to each piece from the end, which is where ``stat`` says."""
    with open(path, "rb", buffering=0) as file:
        pieces = []
        for place in range(file.seek(0, os.SEEK_END) // 100 * 100, -1, -100):
            file.seek(place)
            pieces.append(file.read(100))
        return b"".join(pieces[::-1])


def by_pread(path: str, _: str) -> bytes:
    """Read the second half before the first, from one open file."""
    descriptor = os.open(path, os.O_RDONLY)
    half = os.fstat(descriptor).st_size // 2
    second = os.pread(descriptor, 1 << 20, half)
    return os.pread(descriptor, half, 0) + second


def into_buffers(path: str, _: str) -> bytes:
    """Use readv(2)."""
    descriptor = os.open(path, os.O_RDONLY)
    buffers = [bytearray(7), bytearray(1 << 20)]
    count = os.readv(descriptor, buffers)
    return b"".join(buffers)[:count]


def after_waiting(path: str, wait: Callable[[int], object]) -> bytes:
    """Wait until the open file is readable, then read it, over and over."""
    descriptor = os.open(path, os.O_RDONLY)
    pieces = []
    while True:
        wait(descriptor)
        pieces.append(os.read(descriptor, 1 << 16))
        if not pieces[-1]:
            return b"".join(pieces)


def after_select(path: str, _: str) -> bytes:
    """Wait with select(2)."""
    return after_waiting(path, lambda fd: select.select([fd], [], []))


def after_poll(path: str, _: str) -> bytes:
    """Wait with poll(2)."""

    def wait(descriptor: int) -> None:
        polling = select.poll()
        polling.register(descriptor, select.POLLIN)
        polling.poll()

    return after_waiting(path, wait)


def after_epoll(path: str, _: str) -> bytes:
    """Wait with epoll(7)."""

    def wait(descriptor: int) -> None:
        with select.epoll() as polling:
            polling.register(descriptor, select.EPOLLIN)
            polling.poll()

    return after_waiting(path, wait)


def copied(copy: Callable[[str, str], object]) -> Way:
    """Make a way of something that copies a file."""

    def way(path: str, scratch: str) -> bytes:
        copy(path, scratch)
        return Path(scratch).read_bytes()

    return way


def send(path: str, scratch: str) -> None:
    """Use sendfile(2) until it gives no more."""
    source, target = os.open(path, os.O_RDONLY), os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while os.sendfile(target, source, None, 1 << 20):
        pass


def through_a_pipe(path: str, scratch: str) -> None:
    """Go through a pipe, without the bytes coming into memory."""
    source, target = os.open(path, os.O_RDONLY), os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    out, into = os.pipe()
    while count := os.splice(source, into, 1 << 16):
        os.splice(out, target, count)


def copy_range(path: str, scratch: str) -> None:
    """Use copy_file_range(2), as new cp does, or what Python does where the kernel will not."""
    source, target = os.open(path, os.O_RDONLY), os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while os.copy_file_range(source, target, 1 << 20):
            pass
    except OSError:  # EXDEV, EOPNOTSUPP: another filesystem
        send(path, scratch)


def mapped(path: str, _: str) -> bytes:
    """Map it privately; where it cannot be mapped, that is no answer but no harm either."""
    with open(path, "rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
                return view[:]
        except (OSError, ValueError):  # ENODEV; an empty file
            return file.read()


WAYS: dict[str, Way] = {
    "bytes": lambda path, _: Path(path).read_bytes(),
    "text": in_text,
    "lines": by_lines,
    "pieces": by_pieces,
    "backwards": backwards,
    "pread": by_pread,
    "readv": into_buffers,
    "select": after_select,
    "poll": after_poll,
    "epoll": after_epoll,
    "copyfile": copied(shutil.copyfile),
    "copy2": copied(shutil.copy2),
    "sendfile": copied(send),
    "splice": copied(through_a_pipe),
    "copy_file_range": copied(copy_range),
    "mmap": mapped,
}

if __name__ == "__main__":
    for each in sys.argv[3:]:
        sys.stdout.buffer.write(WAYS[sys.argv[1]](each, sys.argv[2]))
