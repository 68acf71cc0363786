"""The client of both filesystems: ``fs_client.py READ WRITE DIRECTORY [ROUNDS]`` prints microseconds an operation."""

import json
import os
import sys
import time
from collections.abc import Callable


def time_us(act: Callable[[], object], rounds: int) -> float:
    """Return what one *act* takes, in microseconds."""
    began = time.perf_counter()
    for _ in range(rounds):
        act()
    return (time.perf_counter() - began) / rounds * 1e6


def list_all(directory: str) -> None:
    """Do what ``ls -lR`` does below *directory*."""
    with os.scandir(directory) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                list_all(entry.path)


def main(readable: str, writable: str, directory: str, rounds: int) -> None:
    """Time each operation once and print the results as JSON."""
    reader = os.open(readable, os.O_RDONLY)
    writer = os.open(writable, os.O_WRONLY)

    def open_read_close() -> None:
        descriptor = os.open(readable, os.O_RDONLY)
        os.read(descriptor, 4096)
        os.close(descriptor)

    acts: dict[str, Callable[[], object]] = {
        "read 4 KiB": lambda: os.pread(reader, 4096, 0),
        "write 6 B": lambda: os.pwrite(writer, b"hello\n", 0),
        "open+read+close": open_read_close,
        "stat": lambda: os.stat(readable),
        "listdir": lambda: os.listdir(directory),
        "ls -lR, a file": lambda: list_all(directory),
    }
    told = {name: time_us(act, rounds) for name, act in acts.items()}
    files = sum(len(folders) + len(names) for _, folders, names in os.walk(directory))
    told["ls -lR, a file"] /= files  # the trees differ in size
    print(json.dumps(told))


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
