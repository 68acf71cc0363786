"""Calls to a host's disk that no single function of the standard library makes; each blocks its thread."""

import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ollie_fuse.errors import Exists, NotFound
from ollie_fuse.nodes.node import Opening, missing

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


class Identity(NamedTuple):
    """Which file it is, whatever its name."""

    device: int
    inode: int
    is_directory: bool


def gone() -> NotFound:
    """Return the error for a file that the host replaced or removed."""
    return NotFound("the host has removed or replaced this: look its name up again")


def identity_at(path: str) -> Identity | None:
    """Tell what is at *path*, None where that is nothing that a mirror shows. Opens nothing."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return identity_of(status)
    if stat.S_ISLNK(status.st_mode):
        try:
            status = os.stat(path)
        except OSError:
            return None  # a link that leads nowhere, for whatever reason
    return identity_of(status) if stat.S_ISREG(status.st_mode) else None


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity that *status* tells."""
    return Identity(status.st_dev, status.st_ino, stat.S_ISDIR(status.st_mode))


def flags_of(opening: Opening) -> int:
    """Return the flags that open without waiting, whatever has taken the place of the file meanwhile."""
    access = os.O_RDONLY if not opening.write else os.O_RDWR if opening.read else os.O_WRONLY
    return access | (os.O_APPEND if opening.append else 0) | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: str, identity: Identity | None, opening: Opening) -> int:
    """Open the regular file at *path* if it is the one of *identity*; return its descriptor."""
    if identity_at(path) != identity:
        raise gone()
    descriptor = os.open(path, flags_of(opening))
    with closed_on_error(descriptor):
        if identity_of(os.fstat(descriptor)) != identity:
            raise gone()
        if opening.truncate and opening.write:  # after the check: never of another file
            os.ftruncate(descriptor, 0)
        return descriptor


@contextlib.contextmanager
def closed_on_error(descriptor: int) -> Iterator[None]:
    """Close *descriptor* if what follows fails, else leave it to whoever has it then."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def write_all(descriptor: int, offset: int, data: bytes) -> None:
    """Write all of *data*, in as many calls as the disk wants."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)  # with O_APPEND Linux ignores the offset
        rest, offset = rest[written:], offset + written


def close_a_copy(descriptor: int) -> None:
    """Hear now what the host tells only who closes a file: a quota, a network disk that failed."""
    os.close(os.dup(descriptor))


def set_file_times(where: str | int, atime_ns: int | None, mtime_ns: int | None) -> None:
    """Set the times that are given; not atomic with one of them None, since Python has no UTIME_OMIT."""
    now = os.stat(where)
    atime_ns = now.st_atime_ns if atime_ns is None else atime_ns
    os.utime(where, ns=(atime_ns, now.st_mtime_ns if mtime_ns is None else mtime_ns))


def set_exact_mode(where: str | int, mode: int) -> None:
    """Undo what our own umask took off a new file; a disk without modes (vfat) refuses, and keeps its own."""
    inherited = os.stat(where).st_mode & stat.S_ISGID
    with contextlib.suppress(PermissionError):
        os.chmod(where, stat.S_IMODE(mode) | inherited)


def remove_shown(remove: Callable[[str], None], path: str) -> None:
    """Call *remove* on *path* if what is there is shown at all."""
    if identity_at(path) is None:
        raise missing(os.path.basename(path))
    remove(path)


def rename_entry(source: str, destination: str, may_replace: bool) -> None:
    """Rename what is shown at *source*; over what is not shown never, over what is only if it may."""
    if identity_at(source) is None:
        raise missing(os.path.basename(source))
    if os.path.lexists(destination) and identity_at(destination) is None:
        raise Exists("the host has something there that is not shown: remove it there")
    if may_replace:
        os.rename(source, destination)
    else:
        _rename_no_replace(source, destination)


def _rename_no_replace(source: str, destination: str) -> None:
    """Rename unless the name is taken, in one step; EINVAL on a disk that cannot: mv expects that."""
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(source), os.fsencode(destination)
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_NOREPLACE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), destination)
