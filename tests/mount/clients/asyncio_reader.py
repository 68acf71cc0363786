"""Read lines of a file as asyncio programs do, with ``add_reader``: ``asyncio_reader.py FILE LINES``.

Prints ``ready`` when it waits, then the lines.
"""

import asyncio
import os
import sys


async def read_lines(path: str, count: int) -> bytes:
    """Read until there are as many lines, whenever the loop says that the file is readable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    loop, got, is_done = asyncio.get_running_loop(), bytearray(), asyncio.Event()

    def read() -> None:
        got.extend(os.read(descriptor, 4096))
        if got.count(b"\n") >= count:
            is_done.set()

    loop.add_reader(descriptor, read)
    loop.call_later(0.05, lambda: os.write(1, b"ready\n"))
    async with asyncio.timeout(10):
        await is_done.wait()
    return bytes(got)


if __name__ == "__main__":
    os.write(1, asyncio.run(read_lines(sys.argv[1], int(sys.argv[2]))))
