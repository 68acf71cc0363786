"""Synthetic directories: nothing in them can be touched but what they offer, and `rm -r` works all the same."""

import gc
import weakref
from dataclasses import dataclass

import pytest

from ollie_fuse.errors import Exists, NotFound, NotPermitted, OllieError
from ollie_fuse.nodes import Directory, FixedDirectory, LiveDirectory, TextFile
from tests.nodes.door import BOTH, Person, stamp_at


@dataclass(eq=False)
class Thing:
    """What a live directory stands for."""

    name: str


class Shelf:
    """Things by name, and their directory; ``bad`` cannot be made."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.built = 0
        self.places: list[str | None] = []
        self.directory: LiveDirectory[Thing] = LiveDirectory(
            lambda: {"new": TextFile(lambda: "", stamp_at(1)), "sub": empty_directory()},
            stamp_at(42),
            live=lambda: self.things,
            node_of=self._node_of,
            make=self._make,
            remove=self._remove,
            move=self._move,
        )

    def _node_of(self, thing: Thing) -> Directory:
        self.built += 1
        return FixedDirectory(lambda: {"text": TextFile(lambda: thing.name, stamp_at(1))}, stamp_at(1))

    async def _make(self, name: str, place: str | None) -> None:
        if name == "bad":
            raise NotFound("no such place")
        self.places.append(place)
        self.things[name] = Thing(name)

    async def _remove(self, name: str) -> None:
        del self.things[name]

    def _move(self, old: str, new: str) -> None:
        if new in self.things:
            raise Exists("taken")
        self.things[new] = self.things.pop(old)


def empty_directory() -> FixedDirectory:
    return FixedDirectory(dict, stamp_at(1))


async def names(directory: Directory) -> list[str]:
    return [name for name, _ in await directory.entries()]


async def test_fixed_children_are_built_once_at_the_first_look() -> None:
    """Nothing is built before somebody looks, and every look gives the same nodes."""
    builds = []

    def build() -> dict[str, TextFile]:
        builds.append(1)
        return {"a": TextFile(lambda: "", stamp_at(1))}

    directory = FixedDirectory(build, stamp_at(42))
    assert (await directory.attributes()).mtime_ns == 42
    assert builds == []
    node = await directory.lookup("a")
    assert await directory.entries() == [("a", node)]
    assert builds == [1]
    for name in ("b", "", "a/", ".."):
        with pytest.raises(NotFound):
            await directory.lookup(name)


async def test_what_is_part_of_the_tree_stays() -> None:
    """A process that has not listed the directory can remove, make and move nothing in it."""
    shelf = Shelf()
    await shelf.directory.mkdir("a", 0o700, Person())
    for attempt in (
        shelf.directory.unlink("new", Person()),
        shelf.directory.rmdir("sub", Person()),
        shelf.directory.rename("new", shelf.directory, "x", may_replace=True),
        shelf.directory.rename("sub", shelf.directory, "x", may_replace=True),
        shelf.directory.create("x", 0o600, BOTH),
        empty_directory().mkdir("x", 0o700, Person()),
    ):
        with pytest.raises(NotPermitted):
            await attempt
    assert await names(shelf.directory) == ["new", "sub", "a"]


async def test_rm_r_unlinks_what_it_listed_to_no_effect() -> None:
    """Who listed a directory may remove its files and fixed directories, which stay; nobody else may."""
    shelf, lister = Shelf(), Person()
    lister.list(shelf.directory)
    await shelf.directory.mkdir("a", 0o700, Person())
    await shelf.directory.unlink("new", lister)
    await shelf.directory.rmdir("sub", lister)
    assert await names(shelf.directory) == ["new", "sub", "a"]
    for attempt in (
        shelf.directory.unlink("sub", lister),
        shelf.directory.unlink("a", lister),
        shelf.directory.rmdir("new", lister),
        shelf.directory.unlink("new", Person()),
    ):
        with pytest.raises(NotPermitted):
            await attempt
    for missing in (shelf.directory.unlink("x", lister), shelf.directory.rmdir("x", lister)):
        with pytest.raises(NotFound):
            await missing
    assert list(shelf.things) == ["a"]


async def test_rmdir_removes_what_lives() -> None:
    """`rmdir` of a live directory ends what it stands for, listed or not."""
    shelf = Shelf()
    await shelf.directory.mkdir("a", 0o700, Person())
    await shelf.directory.rmdir("a", Person())
    assert await names(shelf.directory) == ["new", "sub"]


async def test_mkdir_tells_where_the_caller_stands() -> None:
    """What mkdir makes knows the caller's directory, and the node it returns is the one that lookup gives."""
    shelf = Shelf()
    made = await shelf.directory.mkdir("a", 0o755, Person("/usr"))
    assert shelf.places == ["/usr"]
    assert await shelf.directory.lookup("a") is made
    for taken in ("new", "sub"):
        with pytest.raises(Exists):
            await shelf.directory.mkdir(taken, 0o755, Person())
    with pytest.raises(NotFound):
        await shelf.directory.mkdir("bad", 0o755, Person())
    assert list(shelf.things) == ["a"]


async def test_inode_outlives_a_rename() -> None:
    """A renamed directory is the same node under its new name; the old name is free and a namesake is another node."""
    shelf = Shelf()
    made = await shelf.directory.mkdir("a", 0o700, Person())
    await shelf.directory.rename("a", shelf.directory, "b", may_replace=True)
    assert await shelf.directory.lookup("b") is made
    with pytest.raises(NotFound):
        await shelf.directory.lookup("a")
    assert (await shelf.directory.mkdir("a", 0o700, Person())).inode != made.inode
    await shelf.directory.rename("b", shelf.directory, "b", may_replace=True)
    assert dict(await shelf.directory.entries())["b"] is made


async def test_rename_refuses() -> None:
    """A live directory moves neither elsewhere nor onto something that is there."""
    shelf, other = Shelf(), Shelf()
    for name in ("a", "b"):
        await shelf.directory.mkdir(name, 0o700, Person())
    for target, new in ((other.directory, "a"), (shelf.directory, "b"), (shelf.directory, "new")):
        with pytest.raises(OllieError):
            await shelf.directory.rename("a", target, new, may_replace=True)
    assert list(shelf.things) == ["a", "b"]
    assert list(other.things) == []


async def test_dead_nodes_are_forgotten() -> None:
    """However many come and go, what a directory keeps of the dead is bounded, and the living keep their nodes."""
    shelf = Shelf()
    kept = await shelf.directory.mkdir("kept", 0o700, Person())
    dead: list[weakref.ref[Thing]] = []
    for number in range(200):
        await shelf.directory.mkdir(f"t{number}", 0o700, Person())
        dead.append(weakref.ref(shelf.things[f"t{number}"]))
        await shelf.directory.rmdir(f"t{number}", Person())
    gc.collect()
    assert sum(ref() is not None for ref in dead) < 20
    assert await shelf.directory.lookup("kept") is kept
    assert shelf.built == 201
