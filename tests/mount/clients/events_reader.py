"""Follow ``events`` and break off often: ``events_reader.py EVENTS SINCE LAST SEED``.

Opens the file, takes up after the last line that it had whole, reads a few bytes or many, closes; until it has had the
event LAST. Prints the numbers of all events it had, on one line.
"""

import json
import os
import random
import sys


def read_some(path: str, since: int, last: int, rng: random.Random) -> list[int]:
    """Read a little from a new open file; return the numbers of the lines that came whole."""
    descriptor = os.open(path, os.O_RDWR)
    os.write(descriptor, b"since %d" % since)
    data, numbers = b"", [since]
    for _ in range(rng.randint(1, 3)):
        if numbers[-1] < last:
            data += os.read(descriptor, rng.choice((1, 10, 100, 1000, 100_000)))
            numbers = [since, *(json.loads(line)["seq"] for line in data.split(b"\n")[:-1])]
    os.close(descriptor)
    return numbers[1:]


def main(path: str, since: int, last: int, seed: int) -> None:
    """Follow until the last."""
    rng, had = random.Random(seed), [since]
    while had[-1] < last:
        had += read_some(path, had[-1], last, rng)
    sys.stdout.write(" ".join(map(str, had[1:])))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
