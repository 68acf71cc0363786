"""A host directory passed through, for the user's own files: what is edited here is edited there.

Owns the descriptors of its open files, and which node stands for which host file. The files belong to the
host, which may change them behind our back: a node remembers its host file's identity and acts on no other.
Directories, regular files and links to regular files are shown. A link is followed; unlink takes the link.

Every call to the disk runs in a thread that is never abandoned (only a close is, after a time limit): a
cancelled operation has either not begun or is done, and what it opened has an owner. Operations on names run
one at a time within a mirror, so that a path found in the tree is still the node's when the disk hears of it.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

import trio

from ollie_fuse.errors import Exists, Invalid, NotFound, NotPermitted
from ollie_fuse.nodes.disk import (
    Identity,
    close_a_copy,
    closed_on_error,
    flags_of,
    gone,
    identity_at,
    identity_of,
    open_regular,
    remove_shown,
    rename_entry,
    set_exact_mode,
    set_file_times,
    write_all,
)
from ollie_fuse.nodes.node import Attributes, Caller, Directory, File, Handle, Node, Opening, Wait, missing

_NAME_LIMIT_BYTES = 255
_THREADS = 8
_CLOSE_LIMIT_S = 10

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")
_Place = tuple["_MirrorDirectory", str]
"""A parent and a name in it."""


class _Disk:
    """What the nodes of one mirror share: turns on its names, and threads of their own, should it hang."""

    def __init__(self) -> None:
        self.names = trio.Lock()
        self._threads = trio.CapacityLimiter(_THREADS)

    async def run(self, call: Callable[[*_Args], _T], *args: *_Args) -> _T:
        return await trio.to_thread.run_sync(call, *args, limiter=self._threads)


class _MirrorHandle(Handle):
    """One descriptor of the host's, closed by ``release``."""

    __slots__ = ("_closing", "_descriptor", "_file")

    def __init__(self, file: "_MirrorFile", descriptor: int) -> None:
        self._file = file
        self._descriptor = descriptor
        # The file asks any of its handles for attributes, from a thread, while another closes it.
        self._closing = threading.Lock()
        file.handles.add(self)

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        return await self._file.disk.run(os.pread, self._descriptor, size, offset)

    async def write(self, offset: int, data: bytes) -> None:
        await self._file.disk.run(write_all, self._descriptor, offset, data)

    async def flush(self) -> None:
        await self._file.disk.run(close_a_copy, self._descriptor)

    async def fsync(self) -> None:
        await self._file.disk.run(os.fsync, self._descriptor)

    async def set_size(self, size: int) -> None:
        await self._file.disk.run(os.ftruncate, self._descriptor, size)

    async def release(self) -> None:
        self._file.handles.discard(self)
        with trio.move_on_after(_CLOSE_LIMIT_S, shield=True):
            # A limiter of its own: a close must not queue behind reads that hang.
            await trio.to_thread.run_sync(self._close, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))

    def apply(self, call: Callable[[int], _T]) -> _T:
        """Call with the descriptor, in a thread; EBADF once it is closed."""
        with self._closing:
            return call(self._descriptor)

    def _close(self) -> None:
        with self._closing:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


class _MirrorNode(Node):
    """What files and directories share: a place below a parent, and the attributes of what is there."""

    __slots__ = ("__weakref__", "disk", "handles", "identity", "place")

    def __init__(self, disk: _Disk, place: _Place | None, identity: Identity | None) -> None:
        super().__init__()
        self.disk = disk
        self.place = place
        self.identity = identity
        self.handles: set[_MirrorHandle] = set()

    def path(self) -> str:
        """Return the host path that the node has now; the caller holds ``disk.names`` until it is used."""
        if self.place is None:
            raise gone()
        parent, name = self.place
        return os.path.join(parent.path(), name)

    async def attributes(self) -> Attributes:
        status = await self._apply(os.stat)
        return Attributes(stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns)

    async def set_mode(self, mode: int) -> None:
        await self._apply(lambda where: os.chmod(where, stat.S_IMODE(mode)))

    async def set_times(self, atime_ns: int | None, mtime_ns: int | None) -> None:
        await self._apply(lambda where: set_file_times(where, atime_ns, mtime_ns))

    async def _apply(self, call: Callable[[str | int], _T]) -> _T:
        """Call, in a thread, with the path of the host file, or once that is gone with an open descriptor."""
        async with self.disk.names:
            return await self.disk.run(self._apply_in_thread, call, tuple(self.handles))

    def _apply_in_thread(self, call: Callable[[str | int], _T], handles: Iterable[_MirrorHandle]) -> _T:
        if self._is_in_place():
            return call(self.path())
        problem: Exception = gone()
        for handle in handles:
            try:
                return handle.apply(call)
            except OSError as exc:  # one that is open for writing may do better
                problem = exc
        raise problem

    def _is_in_place(self) -> bool:
        return self.place is not None and identity_at(self.path()) == self.identity


class _MirrorFile(_MirrorNode, File):
    """A regular file of the host's, or a link to one."""

    __slots__ = ()

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        return await self.open_checked(opening)

    async def open_checked(self, opening: Opening) -> _MirrorHandle:
        """Open, whoever asks; the caller has checked the mode."""
        async with self.disk.names:
            descriptor = await self.disk.run(open_regular, self.path(), self.identity, opening)
        return _MirrorHandle(self, descriptor)

    async def set_size(self, size: int) -> None:
        await self._apply(lambda where: os.truncate(where, size))


class _MirrorDirectory(_MirrorNode, Directory):
    """A directory of the host's; knows those of its children that somebody holds."""

    __slots__ = ("children",)

    def __init__(self, disk: _Disk, place: _Place | None, identity: Identity | None) -> None:
        super().__init__(disk, place, identity)
        self.children: WeakValueDictionary[str, _MirrorNode] = WeakValueDictionary()

    async def lookup(self, name: str) -> Node:
        async with self.disk.names:
            identity = await self.disk.run(identity_at, self.child_path(name))
            if identity is None:
                raise missing(name)
            return self._child(name, identity)

    async def entries(self) -> Iterable[tuple[str, Node]]:
        async with self.disk.names:
            found = await self.disk.run(self._list_in_thread)
            return [(name, self._child(name, identity)) for name, identity in found]

    async def create(self, name: str, mode: int, opening: Opening) -> tuple[File, Handle]:
        """Make a regular file and open it, or open the one that the host has made meanwhile.

        The mode is taken as it is: the umask that counts is the caller's, and the door has applied it.
        """
        async with self.disk.names:
            with contextlib.suppress(FileExistsError):
                descriptor, identity = await self.disk.run(self._create_in_thread, name, mode, opening)
                file = self._child(name, identity)
                assert isinstance(file, _MirrorFile)
                return file, _MirrorHandle(file, descriptor)
        return await self._open_existing(name, opening)

    async def mkdir(self, name: str, mode: int, caller: Caller) -> Directory:
        async with self.disk.names:
            identity = await self.disk.run(self._mkdir_in_thread, name, mode)
            directory = self._child(name, identity)
        assert isinstance(directory, _MirrorDirectory)
        return directory

    async def unlink(self, name: str, caller: Caller) -> None:
        await self._remove(os.unlink, name)

    async def rmdir(self, name: str, caller: Caller) -> None:
        await self._remove(os.rmdir, name)

    async def rename(self, old: str, target: Directory, new: str, *, may_replace: bool) -> None:
        """Move a child within this mirror; EXDEV to another mirror, so that mv copies."""
        if not isinstance(target, _MirrorDirectory):
            raise NotPermitted(f"{old!r} cannot leave its directory for one that is not on the host: copy it")
        if target.disk is not self.disk:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        async with self.disk.names:
            await self.disk.run(rename_entry, self.child_path(old), target.child_path(new), may_replace)
            moved = self.children.pop(old, None)
            target.forget(new)
            if moved is not None:
                moved.place = (target, new)
                target.children[new] = moved

    def child_path(self, name: str) -> str:
        """Return the host path of a child, its name checked."""
        _check_name(name)
        return os.path.join(self.path(), name)

    def forget(self, name: str) -> None:
        """Let the child of that name, which the host no longer has, live on its open handles alone."""
        child = self.children.pop(name, None)
        if child is not None:
            child.place = None

    def _child(self, name: str, identity: Identity) -> _MirrorNode:
        child = self.children.get(name)
        if child is None or child.identity != identity:
            kind = _MirrorDirectory if identity.is_directory else _MirrorFile
            child = self.children[name] = kind(self.disk, (self, name), identity)
        return child

    async def _remove(self, remove: Callable[[str], None], name: str) -> None:
        async with self.disk.names:
            await self.disk.run(remove_shown, remove, self.child_path(name))
            self.forget(name)

    async def _open_existing(self, name: str, opening: Opening) -> tuple[File, Handle]:
        try:
            file = await self.lookup(name)
        except NotFound:
            raise Exists(f"{name!r} is something on the host that is not shown: remove it there") from None
        if not isinstance(file, _MirrorFile):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        await file.check_mode(opening)
        return file, await file.open_checked(opening)

    def _list_in_thread(self) -> list[tuple[str, Identity]]:
        path = self.path()
        found = ((name, identity_at(os.path.join(path, name))) for name in sorted(os.listdir(path)))
        return [(name, identity) for name, identity in found if identity is not None]

    def _create_in_thread(self, name: str, mode: int, opening: Opening) -> tuple[int, Identity]:
        path = self.child_path(name)
        self._make_in_thread()
        descriptor = os.open(path, flags_of(opening) | os.O_CREAT | os.O_EXCL, mode)
        with closed_on_error(descriptor):
            set_exact_mode(descriptor, mode)
            return descriptor, identity_of(os.fstat(descriptor))

    def _mkdir_in_thread(self, name: str, mode: int) -> Identity:
        path = self.child_path(name)
        self._make_in_thread()
        os.mkdir(path, mode)
        set_exact_mode(path, mode)
        return identity_of(os.lstat(path))

    def _make_in_thread(self) -> None:
        """Make the directory itself where it may be missing."""


class MirrorDirectory(_MirrorDirectory):
    """The root of a mirror. *path* may be missing: it is empty then; the first creation makes it, 0700."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        super().__init__(_Disk(), None, None)
        self._path = path

    def path(self) -> str:
        """Return the path given."""
        return str(self._path)

    async def attributes(self) -> Attributes:
        """Tell what the host tells, or what will be made there."""
        try:
            return await super().attributes()
        except FileNotFoundError:
            return Attributes(mode=0o700, size=0, mtime_ns=0)

    def _is_in_place(self) -> bool:
        return True  # whatever the host has at that path

    def _list_in_thread(self) -> list[tuple[str, Identity]]:
        try:
            return super()._list_in_thread()
        except FileNotFoundError:
            return []

    def _make_in_thread(self) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_name(name: str) -> None:
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b""
    if encoded in {b"", b".", b".."} or b"/" in encoded or b"\0" in encoded:
        raise Invalid(f"{name!r} cannot be the name of a file")
    if len(encoded) > _NAME_LIMIT_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
