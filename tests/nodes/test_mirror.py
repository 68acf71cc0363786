import errno
import gc
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ollie_fuse.errors import Denied, Exists, Invalid, NotFound, NotPermitted, errno_of
from ollie_fuse.nodes.dirs import FixedDirectory
from ollie_fuse.nodes.mirror import MirrorDirectory
from ollie_fuse.nodes.node import Directory, File, Handle, Opening
from ollie_fuse.stamp import Stamp

READ = Opening(read=True, write=False)
WRITE = Opening(read=False, write=True)
BOTH = Opening(read=True, write=True)
REWRITE = Opening(read=False, write=True, truncate=True)
APPEND = Opening(read=True, write=True, append=True)


class _Anyone:
    """A caller of whom nothing is known."""

    def cwd(self) -> str | None:
        return None

    def has_listed(self, directory: Directory) -> bool:
        return False


ANYONE = _Anyone()


async def never_wait(until: Callable[[], Awaitable[None]]) -> None:
    raise AssertionError("a mirror does not wait")


@pytest.fixture
def mirror(tmp_path: Path) -> MirrorDirectory:
    return MirrorDirectory(tmp_path)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def host_descriptors(below: Path) -> list[str]:
    """Return what this process has open under *below*."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return [target for target in targets if target.startswith(str(below))]


async def file_at(directory: Directory, name: str) -> File:
    node = await directory.lookup(name)
    assert isinstance(node, File)
    return node


async def directory_at(directory: Directory, name: str) -> Directory:
    node = await directory.lookup(name)
    assert isinstance(node, Directory)
    return node


@asynccontextmanager
async def opened(file: File, opening: Opening) -> AsyncIterator[Handle]:
    handle = await file.open(opening, ANYONE)
    try:
        yield handle
    finally:
        await handle.release()


async def read_whole(file: File) -> bytes:
    async with opened(file, READ) as handle:
        return await handle.read(0, 1 << 20, never_wait)


async def write_new(directory: Directory, name: str, data: bytes, mode: int = 0o644) -> File:
    file, handle = await directory.create(name, mode, WRITE)
    await handle.write(0, data)
    await handle.release()
    return file


async def names(directory: Directory) -> list[str]:
    return [name for name, _ in await directory.entries()]


# Names and nodes


async def test_shows_what_the_host_has(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Listing and lookup give the host's files and directories, with the host's attributes."""
    (tmp_path / "a.yaml").write_bytes(b"hello")
    (tmp_path / "a.yaml").chmod(0o640)
    os.utime(tmp_path / "a.yaml", ns=(1, 1_700_000_000_123_456_789))
    (tmp_path / "d").mkdir(mode=0o750)
    listed = dict(await mirror.entries())
    assert list(listed) == ["a.yaml", "d"]
    assert isinstance(listed["a.yaml"], File)
    assert isinstance(listed["d"], Directory)
    attributes = await listed["a.yaml"].attributes()
    assert (attributes.mode, attributes.size, attributes.mtime_ns) == (0o640, 5, 1_700_000_000_123_456_789)
    assert (await listed["d"].attributes()).mode == 0o750
    assert await read_whole(listed["a.yaml"]) == b"hello"


async def test_same_host_file_is_same_node(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A name gives the same object while somebody holds it, and another once the host replaced the file."""
    (tmp_path / "a").write_bytes(b"1")
    first = await mirror.lookup("a")
    assert await mirror.lookup("a") is first
    assert dict(await mirror.entries())["a"] is first
    (tmp_path / "b").write_bytes(b"22")
    (tmp_path / "b").rename(tmp_path / "a")
    second = await mirror.lookup("a")
    assert second is not first
    with pytest.raises(NotFound):
        await first.attributes()
    assert (await second.attributes()).size == 2


async def test_forgotten_nodes_go(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A node that nobody holds is not kept, and the name then gets a new inode number."""
    (tmp_path / "a").write_bytes(b"")
    inode = (await mirror.lookup("a")).inode
    gc.collect()
    assert (await mirror.lookup("a")).inode != inode


async def test_kind_change_gives_other_node(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A file that the host turned into a directory is a directory at the next lookup."""
    (tmp_path / "a").write_bytes(b"")
    file = await file_at(mirror, "a")
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    await directory_at(mirror, "a")
    with pytest.raises(NotFound):
        await file.open(READ, ANYONE)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0b", "\ud800"])
async def test_bad_names_are_invalid(mirror: MirrorDirectory, tmp_path: Path, name: str) -> None:
    """No operation takes a name that would leave the directory or that no disk has."""
    (tmp_path / "ok").write_bytes(b"")
    for attempt in (
        lambda: mirror.lookup(name),
        lambda: mirror.create(name, 0o600, WRITE),
        lambda: mirror.mkdir(name, 0o700, ANYONE),
        lambda: mirror.unlink(name, ANYONE),
        lambda: mirror.rmdir(name, ANYONE),
        lambda: mirror.rename(name, mirror, "x", may_replace=True),
        lambda: mirror.rename("ok", mirror, name, may_replace=True),
    ):
        with pytest.raises(Invalid):
            await attempt()
    assert os.listdir(tmp_path) == ["ok"]


async def test_long_names(mirror: MirrorDirectory) -> None:
    """A name of 255 bytes is taken, a longer one is ENAMETOOLONG, counted in bytes and not characters."""
    await write_new(mirror, "é" * 127 + "x", b"")
    with pytest.raises(OSError, match="too long") as caught:
        await mirror.create("é" * 128, 0o600, WRITE)
    assert errno_of(caught.value) == errno.ENAMETOOLONG


async def test_names_that_are_not_utf8(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A host name of any bytes is listed, opened, renamed and created again byte for byte."""
    raw = b"caf\xe9\xff"
    (tmp_path / os.fsdecode(raw)).write_bytes(b"x")
    [(name, node)] = await mirror.entries()
    assert os.fsencode(name) == raw
    assert isinstance(node, File)
    assert await read_whole(node) == b"x"
    await mirror.rename(name, mirror, name + "2", may_replace=False)
    await write_new(mirror, name, b"new")
    assert sorted(os.listdir(os.fsencode(tmp_path))) == [raw, raw + b"2"]


async def test_links_to_files_are_followed(
    mirror: MirrorDirectory, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A link to a regular file is read and written through, and moved and removed as a link."""
    target = tmp_path_factory.mktemp("dotfiles") / "real"
    target.write_bytes(b"linked")
    (tmp_path / "link").symlink_to(target)
    file = await file_at(mirror, "link")
    assert (await file.attributes()).size == 6
    async with opened(file, REWRITE) as handle:
        await handle.write(0, b"through")
    assert target.read_bytes() == b"through"
    await mirror.rename("link", mirror, "moved", may_replace=True)
    assert (tmp_path / "moved").is_symlink()
    assert await read_whole(file) == b"through"
    await mirror.unlink("moved", ANYONE)
    assert target.read_bytes() == b"through"
    assert await names(mirror) == []


async def test_what_is_not_shown(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Pipes, sockets, links to directories, dangling links are not there, and nothing replaces them."""
    os.mkfifo(tmp_path / "fifo")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    (tmp_path / "dirlink").symlink_to(tmp_path.parent)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "fifolink").symlink_to(tmp_path / "fifo")
    hidden = sorted(os.listdir(tmp_path))
    assert await names(mirror) == []
    file = await write_new(mirror, "file", b"kept")
    for name in hidden:
        with pytest.raises(NotFound):
            await mirror.lookup(name)
        with pytest.raises(NotFound):
            await mirror.unlink(name, ANYONE)
        with pytest.raises(Exists):
            await mirror.create(name, 0o600, BOTH)
        with pytest.raises(NotFound):
            await mirror.rename(name, mirror, "x", may_replace=True)
        with pytest.raises(Exists):
            await mirror.rename("file", mirror, name, may_replace=True)
    assert sorted(os.listdir(tmp_path)) == sorted([*hidden, "file"])
    assert await read_whole(file) == b"kept"


async def test_pipe_in_place_of_a_file_is_not_opened(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A file that the host replaced with a pipe after the lookup is gone, and opening it does not block."""
    (tmp_path / "a").write_bytes(b"")
    file = await file_at(mirror, "a")
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    for opening in (READ, WRITE, BOTH):
        with trio.fail_after(10), pytest.raises(NotFound):
            await file.open(opening, ANYONE)


# The root


async def test_missing_root_is_empty_and_made_on_demand(tmp_path: Path) -> None:
    """A mirror of a missing path lists empty, and the first creation makes the path for its owner alone."""
    path = tmp_path / "config" / "agents"
    mirror = MirrorDirectory(path)
    assert await names(mirror) == []
    assert (await mirror.attributes()).mode == 0o700
    with pytest.raises(NotFound):
        await mirror.lookup("a")
    with pytest.raises(Invalid):
        await mirror.create("..", 0o600, WRITE)
    assert not path.exists()
    await write_new(mirror, "a", b"x")
    assert mode_of(path) == 0o700
    assert (path / "a").read_bytes() == b"x"
    other = MirrorDirectory(tmp_path / "prompts")
    await other.mkdir("d", 0o755, ANYONE)
    assert await names(other) == ["d"]


async def test_root_may_be_a_link_and_may_come_back(tmp_path: Path) -> None:
    """The root itself may be a link to a directory, and one node serves it through removal and return."""
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    mirror = MirrorDirectory(tmp_path / "root")
    await write_new(mirror, "a", b"")
    (tmp_path / "real" / "a").unlink()
    (tmp_path / "real").rmdir()
    assert await names(mirror) == []
    (tmp_path / "real").mkdir()
    await write_new(mirror, "b", b"")
    assert await names(mirror) == ["b"]


# Reading and writing


async def test_size_is_true_right_after_a_write(mirror: MirrorDirectory) -> None:
    """A file with an open handle shows its size as it is written, truncated and removed."""
    file, handle = await mirror.create("a", 0o600, BOTH)
    await handle.write(3, b"abc")
    assert (await file.attributes()).size == 6
    await handle.set_size(2)
    assert (await file.attributes()).size == 2
    await file.set_size(9)
    assert (await file.attributes()).size == 9
    await mirror.unlink("a", ANYONE)
    await handle.write(9, b"!")
    await handle.flush()
    assert (await file.attributes()).size == 10
    await handle.release()
    with pytest.raises(NotFound):
        await file.attributes()


async def test_create_of_what_the_host_made_meanwhile(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Creating an existing file opens it as it is, where its mode allows that; a directory is EISDIR."""
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o600)
    file, handle = await mirror.create("a", 0o644, BOTH)
    assert await handle.read(0, 10, never_wait) == b"old"
    await handle.release()
    assert (await file.attributes()).mode == 0o600
    _, handle = await mirror.create("a", 0o644, REWRITE)
    await handle.release()
    assert (await file.attributes()).size == 0
    (tmp_path / "a").chmod(0o400)
    with pytest.raises(Denied):
        await mirror.create("a", 0o644, WRITE)
    (tmp_path / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        await mirror.create("d", 0o644, WRITE)


async def test_modes_are_as_asked(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Our own umask takes nothing off the mode of what is made; a read-only new file takes its writes."""
    before = os.umask(0o077)
    try:
        await write_new(mirror, "shared", b"x", 0o664)
        await write_new(mirror, "readonly", b"x", 0o444)
        await mirror.mkdir("d", 0o775, ANYONE)
    finally:
        os.umask(before)
    made = {name: mode_of(tmp_path / name) for name in os.listdir(tmp_path)}
    assert made == {"shared": 0o664, "readonly": 0o444, "d": 0o775}


async def test_append_ignores_offsets(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A file open for appending grows at its end whatever offset a client gives."""
    (tmp_path / "a").write_bytes(b"start")
    async with opened(await file_at(mirror, "a"), APPEND) as handle:
        await handle.write(0, b"+1")
        (tmp_path / "a").write_bytes(b"replaced")
        await handle.write(2, b"+2")
        assert await handle.read(0, 100, never_wait) == b"replaced+2"


async def test_large_writes_are_whole(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A write of 1 MiB arrives whole, and reads at any offset give its parts."""
    data = os.urandom(1 << 20)
    file = await write_new(mirror, "a", data)
    assert (tmp_path / "a").read_bytes() == data
    async with opened(file, READ) as handle:
        await handle.fsync()
        assert await handle.read(1000, 1 << 20, never_wait) == data[1000:]
        assert await handle.read(1 << 20, 10, never_wait) == b""


async def test_descriptors_keep_their_access(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A handle opened to read refuses writes and one opened to write refuses reads, with the host's errno."""
    (tmp_path / "a").write_bytes(b"text")
    file = await file_at(mirror, "a")
    async with opened(file, READ) as reader, opened(file, WRITE) as writer:
        with pytest.raises(OSError, match="descriptor") as caught:
            await reader.write(0, b"x")
        assert caught.value.errno == errno.EBADF
        with pytest.raises(OSError, match="descriptor"):
            await writer.read(0, 1, never_wait)
    async with opened(file, Opening(read=True, write=False, truncate=True)):
        assert (tmp_path / "a").read_bytes() == b"text"


async def test_modes_and_times_are_set(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Modes and times go to the host, None leaves a time alone, and cp -p keeps all of them."""
    path = tmp_path / "a"
    file, handle = await mirror.create("a", 0o600, WRITE)
    await handle.write(0, b"copied")
    await file.set_times(1_000_000_001, 2_000_000_002)
    await file.set_mode(0o640)
    await handle.release()
    await file.set_times(None, 3_000_000_003)
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (1_000_000_001, 3_000_000_003)
    await file.set_times(4, None)
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (4, 3_000_000_003)
    assert mode_of(path) == 0o640
    assert (await file.attributes()).mtime_ns == 3_000_000_003
    await mirror.set_mode(0o750)
    assert mode_of(tmp_path) == 0o750


async def test_removed_while_open(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A file removed on the host works on its handle in every way, and is gone for who opens it anew."""
    file, handle = await mirror.create("a", 0o600, BOTH)
    reader = await file.open(READ, ANYONE)
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_bytes(b"another file")
    await handle.write(0, b"still here")
    await file.set_mode(0o640)
    await file.set_times(None, 5)
    await file.set_size(5)
    assert await reader.read(0, 100, never_wait) == b"still"
    assert (await file.attributes()).mode == 0o640
    with pytest.raises(NotFound):
        await file.open(READ, ANYONE)
    await handle.release()
    await reader.release()
    assert (tmp_path / "a").read_bytes() == b"another file"


# Moving and removing


async def test_node_follows_its_file(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """A file node keeps its number and its file when it, or a directory above it, is renamed, open or not."""
    outer = await mirror.mkdir("outer", 0o755, ANYONE)
    inner = await outer.mkdir("inner", 0o755, ANYONE)
    file, handle = await inner.create("f", 0o644, WRITE)
    await mirror.rename("outer", mirror, "moved", may_replace=False)
    await handle.write(0, b"1")
    await inner.rename("f", mirror, "g", may_replace=False)
    await handle.write(1, b"2")
    await handle.release()
    assert await read_whole(file) == b"12"
    assert await mirror.lookup("g") is file
    assert await outer.lookup("inner") is inner
    assert await mirror.lookup("moved") is outer
    assert (tmp_path / "g").read_bytes() == b"12"
    with pytest.raises(NotFound):
        await inner.lookup("f")


async def test_rename_replaces_or_refuses(mirror: MirrorDirectory) -> None:
    """A taken name is EEXIST where it may not be replaced; else the replaced file lives on its handles."""
    new = await write_new(mirror, "new", b"new")
    old, old_handle = await mirror.create("old", 0o644, BOTH)
    await old_handle.write(0, b"old")
    with pytest.raises(FileExistsError):
        await mirror.rename("new", mirror, "old", may_replace=False)
    assert await mirror.lookup("old") is old
    await mirror.rename("new", mirror, "old", may_replace=True)
    assert await mirror.lookup("old") is new
    assert await read_whole(new) == b"new"
    assert await old_handle.read(0, 10, never_wait) == b"old"
    assert (await old.attributes()).size == 3
    await old_handle.release()
    await mirror.rename("old", mirror, "old", may_replace=True)
    assert await mirror.lookup("old") is new
    with pytest.raises(NotFound):
        await mirror.rename("new", mirror, "x", may_replace=True)


async def test_directories_are_not_replaced_unasked(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """An empty directory is replaced by another only where that is allowed, and none is moved into itself."""
    one = await mirror.mkdir("one", 0o755, ANYONE)
    two = await mirror.mkdir("two", 0o755, ANYONE)
    with pytest.raises(FileExistsError):
        await mirror.rename("one", mirror, "two", may_replace=False)
    await mirror.rename("one", mirror, "two", may_replace=True)
    assert await mirror.lookup("two") is one
    with pytest.raises(NotFound):
        await two.entries()
    with pytest.raises(OSError, match="Invalid") as caught:
        await mirror.rename("two", one, "below", may_replace=True)
    assert caught.value.errno == errno.EINVAL
    assert os.listdir(tmp_path) == ["two"]


async def test_rename_stays_in_the_mirror(
    mirror: MirrorDirectory, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another mirror is another device, so that mv copies; another kind of directory takes nothing."""
    await write_new(mirror, "a", b"")
    other = MirrorDirectory(tmp_path_factory.mktemp("other"))
    with pytest.raises(OSError, match="cross-device") as caught:
        await mirror.rename("a", other, "a", may_replace=True)
    assert caught.value.errno == errno.EXDEV
    with pytest.raises(NotPermitted):
        await mirror.rename("a", FixedDirectory(dict, Stamp()), "a", may_replace=True)
    assert os.listdir(tmp_path) == ["a"]


async def test_removal_tells_the_hosts_errno(mirror: MirrorDirectory) -> None:
    """Removing the wrong kind, a full directory or nothing at all fails as on the host."""
    directory = await mirror.mkdir("d", 0o755, ANYONE)
    await write_new(directory, "f", b"")
    with pytest.raises(IsADirectoryError):
        await mirror.unlink("d", ANYONE)
    with pytest.raises(NotADirectoryError):
        await directory.rmdir("f", ANYONE)
    with pytest.raises(OSError, match="not empty"):
        await mirror.rmdir("d", ANYONE)
    with pytest.raises(FileExistsError):
        await mirror.mkdir("d", 0o755, ANYONE)
    await directory.unlink("f", ANYONE)
    await mirror.rmdir("d", ANYONE)
    with pytest.raises(NotFound):
        await mirror.rmdir("d", ANYONE)
    with pytest.raises(NotFound):
        await directory.create("f", 0o600, WRITE)


# What editors do


async def test_vim_writes(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Vim's way to write a file through a backup leaves the new text, the old mode and nothing else."""
    old = await write_new(mirror, "agent.yaml", b"old\n", 0o640)
    await write_new(mirror, "4913", b"", 0o640)
    await mirror.unlink("4913", ANYONE)
    await mirror.rename("agent.yaml", mirror, "agent.yaml~", may_replace=True)
    file, handle = await mirror.create("agent.yaml", 0o600, WRITE)
    await handle.write(0, b"new\n")
    await handle.fsync()
    await file.set_mode(0o640)
    await handle.flush()
    await handle.release()
    assert file is not old
    assert await mirror.lookup("agent.yaml~") is old
    await mirror.unlink("agent.yaml~", ANYONE)
    assert os.listdir(tmp_path) == ["agent.yaml"]
    assert (await file.attributes()).mode == 0o640
    assert await read_whole(await file_at(mirror, "agent.yaml")) == b"new\n"


async def test_sed_edits_in_place(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Sed's new file takes the name with its own node, while a reader of the old one reads on."""
    old = await write_new(mirror, "prompt", b"old")
    async with opened(old, READ) as reader:
        file, handle = await mirror.create("sedXYZ", 0o600, BOTH)
        await handle.write(0, await reader.read(0, 100, never_wait) + b"+")
        await file.set_mode(0o644)
        await handle.release()
        await mirror.rename("sedXYZ", mirror, "prompt", may_replace=True)
        assert await reader.read(0, 100, never_wait) == b"old"
    assert await mirror.lookup("prompt") is file
    assert await read_whole(file) == b"old+"
    assert os.listdir(tmp_path) == ["prompt"]


# Cancellation and descriptors


async def test_cancelled_operations_leak_nothing(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """Cancelled at any moment, an open has either not happened or its caller has the handle."""
    file = await write_new(mirror, "a", b"text")
    for delay in range(12):
        held: list[Handle] = []

        async def open_both(held: list[Handle] = held, name: str = f"new{delay}") -> None:
            held.append(await file.open(READ, ANYONE))
            held.append((await mirror.create(name, 0o600, WRITE))[1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_both)
            for _ in range(delay):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert len(host_descriptors(tmp_path)) == len(held)
        for handle in held:
            await handle.release()
        assert host_descriptors(tmp_path) == []
    assert await mirror.lookup("a") is file


async def test_release_closes_once_even_if_cancelled(mirror: MirrorDirectory, tmp_path: Path) -> None:
    """After a cancelled read a cancelled release closes the descriptor, and a second closes nothing."""
    file = await write_new(mirror, "a", b"text")
    handle = await file.open(READ, ANYONE)
    with trio.CancelScope() as scope:
        scope.cancel()
        await handle.read(0, 4, never_wait)
    assert scope.cancelled_caught
    assert await handle.read(0, 4, never_wait) == b"text"
    with trio.CancelScope() as scope:
        scope.cancel()
        await handle.release()
    assert host_descriptors(tmp_path) == []
    async with opened(file, READ) as other:
        await handle.release()
        assert await other.read(0, 4, never_wait) == b"text"


async def test_names_stay_right_under_concurrency(mirror: MirrorDirectory) -> None:
    """Attributes and opens during renames never miss the file."""
    directory = await mirror.mkdir("d0", 0o755, ANYONE)
    file = await write_new(directory, "f", b"text")

    async def move() -> None:
        for number in range(50):
            await mirror.rename(f"d{number}", mirror, f"d{number + 1}", may_replace=False)
        nursery.cancel_scope.cancel()

    async def look() -> None:
        while True:
            assert (await file.attributes()).size == 4
            assert await read_whole(file) == b"text"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        nursery.start_soon(look)
        nursery.start_soon(move)
    assert await mirror.lookup("d50") is directory


_OFFSETS = st.integers(0, 300)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _OFFSETS, st.binary(max_size=200)),
        st.tuples(st.just("append"), _OFFSETS, st.binary(max_size=200)),
        st.tuples(st.just("read"), _OFFSETS, st.integers(0, 500)),
        st.tuples(st.just("truncate"), _OFFSETS, st.booleans()),
    ),
    max_size=20,
)


class _PlainFile:
    """What a file is on the host, for comparison."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)

    def size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def write(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.write(data)

    def read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def set_size(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


@settings(deadline=None, max_examples=60)
@given(steps=_STEPS)
async def test_handle_is_like_a_plain_file(steps: list[tuple[str, int, bytes | int]]) -> None:
    """Reads, writes, appends and truncations in any order give what they give on a plain file."""
    with tempfile.TemporaryDirectory() as root, closing(_PlainFile(Path(root, "plain"))) as plain:
        file, handle = await MirrorDirectory(Path(root, "mirror")).create("f", 0o600, BOTH)
        async with opened(file, APPEND) as appender:
            for verb, offset, argument in steps:
                if isinstance(argument, bytes):
                    await (handle if verb == "write" else appender).write(offset, argument)
                    plain.write(offset if verb == "write" else plain.size(), argument)
                elif verb == "read":
                    assert await handle.read(offset, argument, never_wait) == plain.read(offset, argument)
                else:
                    await (file if argument else handle).set_size(offset)
                    plain.set_size(offset)
                assert (await file.attributes()).size == plain.size()
        assert await handle.read(0, 1 << 20, never_wait) == plain.read(0, 1 << 20)
        await handle.release()
