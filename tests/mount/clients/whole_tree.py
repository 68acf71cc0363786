"""Look at a whole tree: ``whole_tree.py ROOT`` prints JSON, for each file what ``stat`` told and what was read.

A file: ``[size, size of the open file, mtime_ns, text]``. It lists each directory first, as every program does that
looks around.
"""

import json
import os
import sys


def look(path: str) -> tuple[int, int, int, str]:
    """Look at one file."""
    told = os.stat(path)
    with open(path, "rb", buffering=0) as file:
        opened = os.fstat(file.fileno()).st_size
        data = b"".join(iter(lambda: file.read(1 << 16), b""))
    return told.st_size, opened, told.st_mtime_ns, data.decode()


def main(root: str) -> None:
    """Look at all of them."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    json.dump({os.path.relpath(path, root): look(path) for path in paths}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
