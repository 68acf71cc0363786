"""The least that a door is to a node: somebody who asks, a way to wait, and how files are opened."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ollie_fuse.nodes import Directory, File, Handle, Opening
from ollie_fuse.stamp import Stamp

READ = Opening(read=True, write=False)
WRITE = Opening(read=False, write=True)
BOTH = Opening(read=True, write=True)
REWRITE = Opening(read=True, write=True, truncate=True)
APPEND = Opening(read=True, write=True, append=True)


class Person:
    """A caller who stands in *place* and has listed some directories."""

    def __init__(self, place: str | None = None) -> None:
        self._place = place
        self._listed: set[int] = set()

    def list(self, directory: Directory) -> None:
        self._listed.add(directory.inode)

    def cwd(self) -> str | None:
        return self._place

    def has_listed(self, directory: Directory) -> bool:
        return directory.inode in self._listed


class Waiting:
    """A door's ``Wait`` that counts how often it was used."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, park: Callable[[], Awaitable[None]]) -> None:
        self.count += 1
        await park()


async def never_wait(_park: Callable[[], Awaitable[None]]) -> None:
    raise AssertionError("nothing here should wait")


@asynccontextmanager
async def opened(file: File, opening: Opening, caller: Person | None = None) -> AsyncIterator[Handle]:
    """Open as a door does, and close as a process does: a flush, then the release."""
    handle = await file.open(opening, caller or Person())
    yield handle
    await handle.flush()
    await handle.release()


async def read_whole(file: File) -> bytes:
    """Read what a new open file gives, in small pieces, as ``cat`` does."""
    said = b""
    async with opened(file, READ) as handle:
        while piece := await handle.read(len(said), 7, never_wait):
            said += piece
    return said


def stamp_at(ns: int) -> Stamp:
    """Return a stamp of a given time."""
    stamp = Stamp()
    stamp.ns = ns
    return stamp
