"""Directories of a synthetic tree: fixed ones, and ones that follow a live mapping.

Nothing in them can be created, renamed or removed but what they offer themselves. One courtesy: ``rm -r`` unlinks
what it listed before it removes the directory, so a process that listed a directory may unlink its files, to no
effect.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from ollie_fuse.errors import Exists, Invalid, NotPermitted
from ollie_fuse.nodes.node import Attributes, Caller, Directory, File, Node, missing
from ollie_fuse.stamp import Stamp

T = TypeVar("T")


class FixedDirectory(Directory):
    """A directory whose children never change; *build* is asked once, at the first look."""

    __slots__ = ("_build", "_children")
    is_listing_tracked = True
    are_names_cached = True

    def __init__(self, build: Callable[[], Mapping[str, Node]], stamp: Stamp) -> None:
        super().__init__(stamp)
        self._build = build
        self._children: Mapping[str, Node] | None = None

    def children(self) -> Mapping[str, Node]:
        """Return the fixed children by name."""
        if self._children is None:
            self._children = self._build()
        return self._children

    async def attributes(self) -> Attributes:
        return Attributes(0o700, 0, self.mtime_ns)

    def fixed_files(self) -> Iterable[tuple[str, File]]:
        return [(name, node) for name, node in self.children().items() if isinstance(node, File)]

    async def lookup(self, name: str) -> Node:
        try:
            return self.children()[name]
        except KeyError:
            raise missing(name) from None

    async def entries(self) -> Iterable[tuple[str, Node]]:
        return list(self.children().items())

    async def unlink(self, name: str, caller: Caller) -> None:
        node = await self.lookup(name)
        if isinstance(node, Directory) or not caller.has_listed(self):
            raise NotPermitted(f"{name!r} is part of the tree and cannot be removed")

    async def rmdir(self, name: str, caller: Caller) -> None:
        node = await self.lookup(name)
        if not isinstance(node, Directory) or not caller.has_listed(self):
            raise NotPermitted(f"{name!r} is part of the tree and cannot be removed")
        node.renew_inode()  # to the kernel the old one is a removed directory, in which nothing is found


class LiveDirectory(FixedDirectory, Generic[T]):
    """Fixed children and, beside them, one directory for each value of a live mapping.

    *node_of* makes a value's node, once as long as the value is there, so that its inode outlives a rename. *make*,
    *remove* and *move* are what mkdir, rmdir and rename do; they refuse by raising.
    """

    __slots__ = ("_live", "_make", "_move", "_node_of", "_nodes", "_remove")

    def __init__(
        self,
        build: Callable[[], Mapping[str, Node]],
        stamp: Stamp,
        *,
        live: Callable[[], Mapping[str, T]],
        node_of: Callable[[T], Directory],
        make: Callable[[str, str | None], Awaitable[None]],
        remove: Callable[[str], Awaitable[None]],
        move: Callable[[str, str], None],
    ) -> None:
        super().__init__(build, stamp)
        self._live = live
        self._node_of = node_of
        self._make = make
        self._remove = remove
        self._move = move
        self._nodes: dict[int, tuple[T, Directory]] = {}

    def _node(self, value: T) -> Directory:
        kept = self._nodes.get(id(value))
        if kept is None:
            kept = self._nodes[id(value)] = (value, self._node_of(value))
        return kept[1]

    def _forget_the_dead(self) -> None:
        live = self._live()
        if len(self._nodes) > len(live):
            alive = {id(value) for value in live.values()}
            self._nodes = {key: kept for key, kept in self._nodes.items() if key in alive}

    async def lookup(self, name: str) -> Node:
        self._forget_the_dead()
        value = self._live().get(name)
        return await super().lookup(name) if value is None else self._node(value)

    async def entries(self) -> Iterable[tuple[str, Node]]:
        self._forget_the_dead()
        live = [(name, self._node(value)) for name, value in self._live().items()]
        return [*self.children().items(), *live]

    async def mkdir(self, name: str, mode: int, caller: Caller) -> Directory:
        if name in self.children():
            raise Exists(f"{name!r} is part of the tree")
        await self._make(name, caller.cwd())
        made = await self.lookup(name)
        assert isinstance(made, Directory)
        return made

    async def rmdir(self, name: str, caller: Caller) -> None:
        if name in self._live():
            await self._remove(name)
        else:
            await super().rmdir(name, caller)

    async def rename(self, old: str, target: Directory, new: str, *, may_replace: bool) -> None:
        if target is not self:
            raise NotPermitted(f"{old!r} stays where it is; only its name can change")
        if old not in self._live():
            await super().rename(old, target, new, may_replace=may_replace)
        if old == new:
            return
        if new in self.children():
            raise Invalid(f"{new!r} is part of the tree")
        self._move(old, new)
