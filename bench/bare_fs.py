"""The yardstick: the smallest filesystem that pyfuse3 can serve, one directory with files of 1 MiB."""

import errno
import os
import stat
import sys
from collections.abc import Sequence

import pyfuse3
import trio

DATA = b"x" * (1 << 20)
NAMES = [b"file", *(b"file%d" % n for n in range(1, 20))]


class BareOperations(pyfuse3.Operations):
    """Constant files; nothing is cached."""

    def _entry(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = stat.S_IFDIR | 0o755 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o644
        entry.st_size = 0 if inode == pyfuse3.ROOT_INODE else len(DATA)
        entry.st_uid, entry.st_gid = os.getuid(), os.getgid()
        entry.attr_timeout = entry.entry_timeout = 0
        return entry

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        return self._entry(inode)

    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        if name not in NAMES:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._entry(2 + NAMES.index(name))

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        return inode

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        for number, name in enumerate(NAMES[start_id:], start_id + 1):
            if not pyfuse3.readdir_reply(token, name, self._entry(1 + number), number):
                return

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=inode, direct_io=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return DATA[off : off + size]

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return len(buf)

    async def release(self, fh: int) -> None:
        """Nothing."""

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Nothing."""


def main(mountpoint: str) -> None:
    """Serve until unmounted."""
    pyfuse3.init(BareOperations(), mountpoint, set(pyfuse3.default_options))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main(sys.argv[1])
