"""What the kernel may keep, and when it is taken back."""

import pytest

from ollie_fuse.errors import Stale
from ollie_fuse.nodes import FixedDirectory, TextFile
from ollie_fuse.ops.inodes import CACHE_S, ROOT_INODE, Inodes
from ollie_fuse.stamp import Stamp


class Table:
    """Inodes over a root, and what was invalidated and heard of."""

    def __init__(self) -> None:
        self.invalidated: list[int] = []
        self.changed: list[int] = []
        self.root = FixedDirectory(dict, Stamp())
        self.inodes: Inodes[str] = Inodes(self.root, self.invalidated.append, self.changed.append)


def test_cached_attributes_are_taken_back_once_a_change() -> None:
    """The first change after attributes were told takes them out of the cache, further ones find nothing there."""
    table, stamp = Table(), Stamp()
    node = TextFile(lambda: "x", stamp)
    table.inodes.remember(node, ROOT_INODE, "x")
    stamp.touch()
    assert table.invalidated == []
    assert table.inodes.tell(node.inode, 1, "told") == CACHE_S
    assert table.inodes.entry_of(node.inode) == "told"
    for _ in range(3):
        stamp.touch()
    assert table.invalidated == [node.inode]
    assert table.inodes.entry_of(node.inode) is None
    assert table.changed == [node.inode] * 4
    table.inodes.tell(node.inode, 1, "told")
    stamp.touch()
    assert table.invalidated == [node.inode] * 2


def test_what_tells_nothing_of_its_changes_is_not_cached() -> None:
    """A node without a stamp is asked for every time."""
    table = Table()
    node = TextFile(lambda: "x", None)
    table.inodes.remember(node, ROOT_INODE, "x")
    assert table.inodes.tell(node.inode, 1, "told") == 0


def test_references_are_counted() -> None:
    """An inode is known until the kernel has given back as many references as it took; then nobody watches it."""
    table, stamp = Table(), Stamp()
    node = TextFile(lambda: "x", stamp)
    for _ in range(3):
        table.inodes.remember(node, ROOT_INODE, "x")
    table.inodes.forget(node.inode, 2)
    assert table.inodes.node(node.inode) is node
    table.inodes.forget(node.inode, 1)
    with pytest.raises(Stale):
        table.inodes.node(node.inode)
    stamp.touch()
    assert table.changed == []
    table.inodes.forget(node.inode, 1)
    table.inodes.forget(ROOT_INODE, 100)
    assert table.inodes.node(ROOT_INODE) is table.root


def test_names_follow_look_ups_and_renames() -> None:
    """The way to an inode is that of its last look-up or rename, and is unknown below what was forgotten."""
    table = Table()
    folder, node = FixedDirectory(dict, Stamp()), TextFile(lambda: "x", Stamp())
    table.inodes.remember(folder, ROOT_INODE, "a")
    table.inodes.remember(node, folder.inode, "x")
    assert table.inodes.names_of(node.inode) == ["a", "x"]
    table.inodes.rename(folder, ROOT_INODE, "b")
    assert table.inodes.names_of(node.inode) == ["b", "x"]
    table.inodes.forget(folder.inode, 1)
    assert table.inodes.names_of(node.inode) is None
    assert table.inodes.names_of(ROOT_INODE) == []


def test_outdated_is_what_the_kernel_goes_by() -> None:
    """A size that differs from the one last told is one that the kernel may not know."""
    table = Table()
    node = TextFile(lambda: "x", Stamp())
    table.inodes.remember(node, ROOT_INODE, "x")
    table.inodes.tell(node.inode, 1, "told")
    assert not table.inodes.is_outdated(node.inode, 1)
    assert table.inodes.is_outdated(node.inode, 2)


def test_files_of_a_directory_in_use_are_heard_of() -> None:
    """A change of a file that the kernel never looked up, or forgot, is heard of while its directory is known."""
    table, stamp = Table(), Stamp()
    file = TextFile(lambda: "x", stamp)
    folder = FixedDirectory(lambda: {"x": file}, Stamp())
    table.inodes.remember(folder, ROOT_INODE, "a")
    stamp.touch()
    assert table.changed == []
    table.inodes.use(folder.inode)
    stamp.touch()
    table.inodes.remember(file, folder.inode, "x")
    table.inodes.forget(file.inode, 1)
    stamp.touch()
    assert table.changed == [file.inode] * 2
    assert table.inodes.names_of(file.inode) == ["a", "x"]
    table.inodes.forget(folder.inode, 1)
    stamp.touch()
    assert table.changed == [file.inode] * 2
    assert len(table.inodes) == 1
