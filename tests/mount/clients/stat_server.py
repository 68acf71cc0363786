"""A process that looks at files again and again: for each line ``PATH`` on stdin it prints JSON of what ``stat`` tells.

``{"errno": N}``, or size, mtime_ns and ino. For ``read PATH`` the number of bytes and their text as well, read after
that without looking anything up but the file; for ``listing PATH`` the sorted names in a directory.
"""

import json
import os
import sys
from typing import Any


def look(path: str) -> dict[str, Any]:
    """Look at one file."""
    told = os.stat(path)
    return {"size": told.st_size, "mtime_ns": told.st_mtime_ns, "ino": told.st_ino}


def look_and_read(path: str) -> dict[str, Any]:
    """Look at one file, then read it."""
    told = look(path)
    descriptor = os.open(path, os.O_RDONLY)
    data = b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
    os.close(descriptor)
    return told | {"bytes": len(data), "text": data.decode()}


def answer(line: str) -> dict[str, Any]:
    """Do what a line says."""
    verb, _, path = line.rpartition(" ")
    try:
        match verb:
            case "read":
                return look_and_read(path)
            case "listing":
                return look(path) | {"names": sorted(os.listdir(path))}
            case _:
                return look(path)
    except OSError as exc:
        return {"errno": exc.errno}


if __name__ == "__main__":
    for each in sys.stdin:
        sys.stdout.write(json.dumps(answer(each.rstrip("\n"))) + "\n")
        sys.stdout.flush()
