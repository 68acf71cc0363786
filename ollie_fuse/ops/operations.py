"""The FUSE door: serves a tree of nodes through the kernel. It alone knows pyfuse3, and nothing of what nodes mean.

What pyfuse3 3.5 forces (measured): any exception but FUSEError that leaves a handler ends the mount, so every
handler goes through one guard; ``main()`` counts blocked handlers against ``max_tasks``, so that is unbounded;
``terminate()`` waits for blocked handlers, so the mount ends by cancelling the scope around ``main()``; one mount a
process.
"""

import contextlib
import errno
import functools
import logging
import os
import select
import stat
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import pyfuse3

from ollie_fuse.errors import NotPermitted, errno_of, is_unexpected
from ollie_fuse.nodes import Directory, File, Handle, Node, Opening, Wait
from ollie_fuse.ops.callers import Listings, ProcessCaller
from ollie_fuse.ops.inodes import CACHE_S, Inodes
from ollie_fuse.ops.own_mount import OwnMount
from ollie_fuse.ops.page_cache import PageCacheRefusal, loosen
from ollie_fuse.ops.polls import Polls, is_ready
from ollie_fuse.ops.stalls import StallGuard
from ollie_fuse.ops.waits import OpenFile, Waits

log = logging.getLogger(__name__)

_BLOCK_BYTES = 512
_LOCKED = frozenset({"write", "setattr", "create", "mkdir", "rmdir", "unlink", "rename"})
"""The handlers for which the kernel holds an inode's lock, so that a slow one keeps others in state D."""
_SLOW_S = 0.05

_stalls = StallGuard()
"""One a process, as pyfuse3's session is, and its signals are."""

P = ParamSpec("P")
R = TypeVar("R")


def _guard(handler: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Let nothing but FUSEError leave *handler*; what is unexpected is logged with its traceback, what is slow too."""
    has_lock = handler.__name__ in _LOCKED

    @functools.wraps(handler)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        _stalls.note()
        began = time.monotonic()
        try:
            return await handler(*args, **kwargs)
        except pyfuse3.FUSEError:
            raise
        except Exception as exc:
            if is_unexpected(exc):
                log.exception("%s failed", handler.__name__)
            raise pyfuse3.FUSEError(errno_of(exc)) from None
        finally:
            took_s = time.monotonic() - began
            if took_s > _SLOW_S and has_lock:
                log.warning("%s took %.0f ms; the kernel holds locks meanwhile", handler.__name__, took_s * 1e3)

    return guarded


@dataclass(slots=True)
class _OpenFile:
    """An open file: its handle, how its readers wait, and what keeps the page cache right."""

    handle: Handle
    inode: int
    wait: Wait
    refusal: PageCacheRefusal
    is_size_spoilt: bool
    """Whether O_TRUNC or a write left the kernel with a size of its own making, since the last flush."""
    note_look: Callable[[], None] | None = None
    """Called at the first read of one who only looks around: some programs open a file once more before they read."""


class _Listing:
    """An open directory: its entries, as they were at the first read from the start."""

    __slots__ = ("directory", "entries", "inode")

    def __init__(self, directory: Directory, inode: int) -> None:
        self.directory = directory
        self.inode = inode
        self.entries: Sequence[tuple[str, Node]] = ()


class TreeOperations(pyfuse3.Operations):
    """One served tree: the table of inodes the kernel knows, and that of open files."""

    def __init__(self, root: Directory, own_mount: OwnMount) -> None:
        super().__init__()
        self.waits = Waits()
        self.polls = Polls()
        self.inodes: Inodes[pyfuse3.EntryAttributes] = Inodes(root, self._invalidate, self._note_change)
        self._is_mounted = True
        self._own_mount = own_mount
        self._handles: dict[int, _OpenFile] = {}
        self._writes: Counter[int] = Counter()
        self._listings: dict[int, _Listing] = {}
        self._listed = Listings()
        self._last_fh = 0
        self._owner = (os.getuid(), os.getgid())

    # Tables

    def _directory(self, inode: int) -> Directory:
        node = self.inodes.node(inode)
        if not isinstance(node, Directory):
            raise pyfuse3.FUSEError(errno.ENOTDIR)
        return node

    def _file(self, inode: int) -> File:
        node = self.inodes.node(inode)
        if not isinstance(node, File):
            raise pyfuse3.FUSEError(errno.EISDIR)
        return node

    def _note_change(self, inode: int) -> None:
        _stalls.note()
        if isinstance(self.inodes.node(inode), File):
            self._own_mount.mark(inode)

    def without_stalls(self) -> AbstractContextManager[None]:
        """Let no vanished request stop the loop meanwhile."""
        return _stalls.opened()

    def _new_fh(self) -> int:
        self._last_fh += 1
        return self._last_fh

    def _caller(self, ctx: pyfuse3.RequestContext) -> ProcessCaller:
        return ProcessCaller(ctx.pid, self._listed)

    # Names and attributes

    async def _entry(self, node: Node) -> pyfuse3.EntryAttributes:
        """Make the attributes of *node*; whether the kernel may keep them is ``_told``'s to say."""
        kept = self.inodes.entry_of(self.inodes.inode_of(node))
        if kept is not None:
            return kept
        told = await node.attributes()
        entry = pyfuse3.EntryAttributes()
        is_directory = isinstance(node, Directory)
        entry.st_ino = self.inodes.inode_of(node)
        entry.st_mode = told.mode | (stat.S_IFDIR if is_directory else stat.S_IFREG)
        entry.st_nlink = 1
        entry.st_uid, entry.st_gid = self._owner
        entry.st_size = told.size
        # Fewer blocks than the size needs would look sparse, and cp would ask for holes instead of reading to the end.
        entry.st_blocks = -(-told.size // _BLOCK_BYTES)
        entry.st_blksize = 4096
        entry.st_atime_ns = entry.st_mtime_ns = entry.st_ctime_ns = told.mtime_ns
        entry.attr_timeout = entry.entry_timeout = 0
        return entry

    def _told(self, entry: pyfuse3.EntryAttributes) -> pyfuse3.EntryAttributes:
        """Note that *entry* is told now, in the same step, and let the kernel keep what it may."""
        entry.attr_timeout = self.inodes.tell(entry.st_ino, entry.st_size, entry)
        return entry

    def _named(
        self, entry: pyfuse3.EntryAttributes, node: Node, parent: Directory, parent_inode: int, name: str
    ) -> pyfuse3.EntryAttributes:
        """Make *entry* the answer to a look-up, which the kernel will give back by ``forget``."""
        self.inodes.remember(node, parent_inode, name)
        entry.entry_timeout = CACHE_S if parent.are_names_cached else 0
        return self._told(entry)

    async def _looked_up(self, node: Node, parent_inode: int, name: str) -> pyfuse3.EntryAttributes:
        entry = await self._entry(node)
        return self._named(entry, node, self._directory(parent_inode), parent_inode, name)

    @_guard
    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        text = os.fsdecode(name)
        node = await self._directory(parent_inode).lookup(text)
        entry = await self._looked_up(node, parent_inode, text)
        self.inodes.use(entry.st_ino)
        return entry

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:  # must not raise
        for inode, count in inode_list:
            self.inodes.forget(inode, count)
            self._writes.pop(inode, None)

    @_guard
    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        return self._told(await self._entry(self.inodes.node(inode)))

    @_guard
    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        node = self.inodes.node(inode)
        if self._own_mount.is_own(ctx.pid):
            return self._told(await self._entry(node))
        if (fields.update_uid and attr.st_uid != self._owner[0]) or (
            fields.update_gid and attr.st_gid != self._owner[1]
        ):
            raise NotPermitted("everything here belongs to whoever mounted it")
        if fields.update_mode:
            await node.set_mode(stat.S_IMODE(attr.st_mode))
        if fields.update_size:
            await self._set_size(node, attr.st_size, fh)
        if fields.update_mtime or fields.update_atime:
            await node.set_times(
                attr.st_atime_ns if fields.update_atime else None,
                attr.st_mtime_ns if fields.update_mtime else None,
            )
        return self._told(await self._entry(node))

    async def _set_size(self, node: Node, size: int, fh: int | None) -> None:
        opened = None if fh is None else self._handles.get(fh)
        with self._written(self.inodes.inode_of(node)):
            if opened is not None:
                await opened.handle.set_size(size)
            elif isinstance(node, File):
                await node.check_mode(Opening(read=False, write=True))
                await node.set_size(size)

    @contextlib.contextmanager
    def _written(self, inode: int) -> Iterator[None]:
        """Know that the kernel holds the lock of *inode* meanwhile."""
        self._writes[inode] += 1
        try:
            yield
        finally:
            self._writes[inode] -= 1

    @_guard
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        parent, text = self._directory(parent_inode), os.fsdecode(name)
        if self._own_mount.is_own(ctx.pid):
            self._own_mount.arrived()
            return await self._looked_up(await parent.lookup(text), parent_inode, text)
        made = await parent.mkdir(text, mode & 0o777, self._caller(ctx))
        return await self._looked_up(made, parent_inode, text)

    @_guard
    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        await self._directory(parent_inode).unlink(os.fsdecode(name), self._caller(ctx))

    @_guard
    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        if self._own_mount.is_own(ctx.pid):
            self._own_mount.arrived()
        else:
            await self._directory(parent_inode).rmdir(os.fsdecode(name), self._caller(ctx))

    @_guard
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        if flags & ~pyfuse3.RENAME_NOREPLACE:
            raise pyfuse3.FUSEError(errno.EINVAL)
        target, new = self._directory(parent_inode_new), os.fsdecode(name_new)
        if self._own_mount.is_own(ctx.pid):
            self._own_mount.arrived()
        else:
            may_replace = not flags & pyfuse3.RENAME_NOREPLACE
            source = self._directory(parent_inode_old)
            await source.rename(os.fsdecode(name_old), target, new, may_replace=may_replace)
        self.inodes.rename(await target.lookup(new), parent_inode_new, new)

    @_guard
    async def mknod(self, *args: object) -> pyfuse3.EntryAttributes:
        raise NotPermitted("only regular files, and only where files are kept")

    @_guard
    async def symlink(self, *args: object) -> pyfuse3.EntryAttributes:
        raise NotPermitted("this filesystem has no links")

    @_guard
    async def link(self, *args: object) -> pyfuse3.EntryAttributes:
        raise NotPermitted("this filesystem has no links")

    # Open directories

    @_guard
    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        directory = self._directory(inode)
        if directory.is_listing_tracked:
            self._listed.add(ctx.pid, directory)
        self.inodes.use(inode)
        fh = self._new_fh()
        self._listings[fh] = _Listing(directory, inode)
        return fh

    @_guard
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        if start_id == 0:
            listing.entries = list(await listing.directory.entries())
        for number, (name, node) in enumerate(listing.entries[start_id:], start_id + 1):
            entry = await self._entry_or_none(node)
            if entry is None:
                continue
            self._named(entry, node, listing.directory, listing.inode, name)
            if not pyfuse3.readdir_reply(token, os.fsencode(name), entry, number):
                self.inodes.forget(entry.st_ino, 1)  # it did not fit: the kernel never saw it
                return

    async def _entry_or_none(self, node: Node) -> pyfuse3.EntryAttributes | None:
        """Return the entry, None for a child that went since it was listed, or that cannot tell: the others can."""
        try:
            return await self._entry(node)
        except Exception as exc:
            if is_unexpected(exc):
                log.exception("a child could not tell its attributes")
            return None

    @_guard
    async def releasedir(self, fh: int) -> None:
        del self._listings[fh]

    # Open files

    @_guard
    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        file = self._file(inode)
        opening = _opening_of(flags)
        await file.check_mode(opening)
        looker = None
        if file.may_wait_for_ever and not opening.write and self._is_looking(inode, ctx):
            looker = functools.partial(self._listed.note_look, ctx.pid, inode)
        handle = await (file.open(opening, self._caller(ctx)) if looker is None else file.open_to_look())
        if self.inodes.is_outdated(inode, (await file.attributes()).size):
            self._loosen(inode)
        return self._opened(handle, inode, flags, ctx, looker)

    def _is_looking(self, inode: int, ctx: pyfuse3.RequestContext) -> bool:
        """Whether the opener looks around, as grep -r, tar and backups do: it listed the directory just before."""
        parent = self.inodes.node(self.inodes.parent_of(inode))
        return isinstance(parent, Directory) and self._listed.is_first_look(ctx.pid, parent, inode)

    def _invalidate(self, inode: int) -> None:
        """Take an inode's attributes out of the kernel's cache."""
        if self._is_mounted:
            with _told_in_vain():
                pyfuse3.invalidate_inode(inode, attr_only=True)

    def _loosen(self, inode: int) -> None:
        """Let nobody rely on the size that the kernel has of *inode*."""
        if self._is_mounted:
            with _told_in_vain():
                loosen(pyfuse3.notify_store, inode)
        self.inodes.drop_attributes(inode)

    def close(self) -> None:
        """Tell the kernel nothing more: there is no mount any longer."""
        self._is_mounted = False

    def _opened(
        self,
        handle: Handle,
        inode: int,
        flags: int,
        ctx: pyfuse3.RequestContext,
        looker: Callable[[], None] | None = None,
    ) -> pyfuse3.FileInfo:
        fh = self._new_fh()
        told = OpenFile(fh=fh, inode=inode, opener=ctx.pid, is_nonblocking=bool(flags & os.O_NONBLOCK))
        wait = functools.partial(self.waits.wait, told)
        self._handles[fh] = _OpenFile(
            handle,
            inode,
            wait,
            PageCacheRefusal(ctx.pid, inode),
            is_size_spoilt=bool(flags & os.O_TRUNC),
            note_look=looker,
        )
        return pyfuse3.FileInfo(fh=fh, direct_io=True, keep_cache=False)

    @_guard
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        parent = self._directory(parent_inode)
        file, handle = await parent.create(os.fsdecode(name), mode & 0o777, _opening_of(flags))
        entry = await self._looked_up(file, parent_inode, os.fsdecode(name))
        return self._opened(handle, entry.st_ino, flags, ctx), entry

    @_guard
    async def read(self, fh: int, off: int, size: int) -> bytes:
        opened = self._handles[fh]
        if opened.note_look is not None:
            opened.note_look()
            opened.note_look = None
        if not opened.handle.is_sized:
            opened.refusal.check(off, size)
        return await opened.handle.read(off, size, opened.wait)

    @_guard
    async def poll(
        self, inode: int, fh: int, poll_handle: pyfuse3.PollHandle | None, ctx: pyfuse3.RequestContext
    ) -> int:
        awaited = await self._handles[fh].handle.awaited()
        if awaited is None or is_ready(*awaited):
            return select.POLLIN | select.POLLOUT
        if poll_handle is not None:
            self.polls.add(fh, functools.partial(_notify, poll_handle), *awaited)
        return select.POLLOUT

    @_guard
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        opened = self._handles[fh]
        self._writes[opened.inode] += 1  # `_written` by hand: this is the hot path
        try:
            await opened.handle.write(off, buf)
        finally:
            self._writes[opened.inode] -= 1
        opened.is_size_spoilt = True
        if not opened.handle.is_sized:
            self._loosen(opened.inode)  # the answer is read from where the write ended
        return len(buf)

    def is_busy(self, inode: int) -> bool:
        """See ``Door``."""
        return self._writes.get(inode, 0) > 0

    def names_of(self, inode: int) -> list[str] | None:
        """See ``Door``."""
        return self.inodes.names_of(inode)

    def drop_name(self, names: Sequence[str]) -> None:
        """See ``Door``; the kernel wants the parent's lock for it, so a thread of pyfuse3's waits for that."""
        parent = self.inodes.inode_at(names[:-1])
        if parent is not None and self._is_mounted:
            pyfuse3.invalidate_entry_async(parent, os.fsencode(names[-1]), ignore_enoent=True)

    @_guard
    async def flush(self, fh: int) -> None:
        opened = self._handles[fh]
        if opened.is_size_spoilt:
            opened.is_size_spoilt = False
            self._loosen(opened.inode)
        await opened.handle.flush()

    @_guard
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._handles[fh].handle.fsync()

    @_guard
    async def release(self, fh: int) -> None:
        self.polls.remove(fh)
        await self._handles.pop(fh).handle.release()

    @_guard
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Directories have nothing that waits to be written."""

    @_guard
    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        told = pyfuse3.StatvfsData()
        told.f_bsize = told.f_frsize = 4096
        told.f_files = len(self.inodes)
        told.f_namemax = 255
        return told

    async def release_all(self) -> None:
        """Close what clients hold open, as if each had closed it: nothing more will come from the kernel."""
        for opened in self._handles.values():
            await opened.handle.release()
        self._handles.clear()


def _notify(poll_handle: pyfuse3.PollHandle) -> None:
    with _told_in_vain():
        poll_handle.notify()


@contextlib.contextmanager
def _told_in_vain() -> Iterator[None]:
    """Let the kernel not care: it has forgotten the inode by itself, or somebody has just unmounted everything."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENODEV, errno.ENOTCONN):
            raise


def _opening_of(flags: int) -> Opening:
    access = flags & os.O_ACCMODE
    return Opening(
        read=access in (os.O_RDONLY, os.O_RDWR),
        write=access in (os.O_WRONLY, os.O_RDWR),
        truncate=bool(flags & os.O_TRUNC),
        append=bool(flags & os.O_APPEND),
    )
