"""The inodes that the kernel knows: which node each is, where it was looked up, and what was told of it.

Names and attributes of nodes that tell of every change are left in the kernel's cache, and taken out the moment they
change. That is attributes alone, never contents. Taking attributes out waits for nothing in the kernel (no lock of an
inode is held for it), so it happens in the very step that changes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ollie_fuse.errors import Stale
from ollie_fuse.nodes import Directory, Node

ROOT_INODE = 1
CACHE_S = 86400.0
"""As good as for ever: what is cached is taken out when it changes."""


E = TypeVar("E")
"""How the door spells attributes."""


@dataclass(slots=True)
class _Known(Generic[E]):
    """One inode: the references that the kernel holds, and the last name it was looked up by."""

    node: Node
    parent: int
    name: str
    lookups: int = 0
    told_size: int | None = None
    is_cached: bool = False
    """Whether its attributes may stand in the kernel's cache now."""
    entry: E | None = None
    """The attributes as they were last told, as long as nothing changed."""
    watcher: Callable[[], None] | None = None
    files: tuple[int, ...] = ()
    """Of a directory in use: its fixed files, which are known as long as it is."""


class Inodes(Generic[E]):
    """The table. *invalidate* takes an inode's attributes out of the cache; *changed* hears of each change too."""

    def __init__(self, root: Node, invalidate: Callable[[int], None], changed: Callable[[int], None]) -> None:
        self._root = root
        self._invalidate = invalidate
        self._changed = changed
        self._known: dict[int, _Known[E]] = {}
        self.remember(root, ROOT_INODE, "")

    def __len__(self) -> int:
        return len(self._known)

    def inode_of(self, node: Node) -> int:
        """Return the number by which the kernel knows *node*."""
        return ROOT_INODE if node is self._root else node.inode

    def node(self, inode: int) -> Node:
        """Return the node of *inode*; raises Stale for one that was forgotten."""
        known = self._known.get(inode)
        if known is None:
            raise Stale("this inode is gone")
        return known.node

    def remember(self, node: Node, parent: int, name: str) -> None:
        """Count one more reference that the kernel holds, to be given back by ``forget``."""
        known = self._place(node, parent, name)
        known.lookups += 1

    def use(self, inode: int) -> None:
        """Know the fixed files of a directory that somebody looked up or opened.

        Its watchers hear of changes of all its files, also of those that the kernel has not looked up or has forgotten.
        """
        known = self._known[inode]
        if isinstance(known.node, Directory) and not known.files:
            files = list(known.node.fixed_files())
            for name, file in files:
                self._place(file, inode, name)
            known.files = tuple(file.inode for _, file in files)

    def _place(self, node: Node, parent: int, name: str) -> _Known[E]:
        inode = self.inode_of(node)
        known = self._known.get(inode)
        if known is None:
            known = self._known[inode] = _Known(node, parent, name)
            if node.is_watchable:
                known.watcher = lambda: self._note_change(inode)
                node.watch(known.watcher)
        known.parent, known.name = parent, name
        return known

    def rename(self, node: Node, parent: int, name: str) -> None:
        """Note where *node* is now."""
        known = self._known.get(self.inode_of(node))
        if known is not None:
            known.parent, known.name = parent, name

    def forget(self, inode: int, count: int) -> None:
        """Give back *count* references; must not raise."""
        known = self._known.get(inode)
        if known is None or inode == ROOT_INODE:
            return
        known.lookups -= count
        known.told_size, known.is_cached = (known.told_size, known.is_cached) if known.lookups > 0 else (None, False)
        self._drop_if_unused(inode)

    def _drop_if_unused(self, inode: int) -> None:
        known = self._known.get(inode)
        if known is None or known.lookups > 0:
            return
        parent = self._known.get(known.parent)
        if parent is not None and inode in parent.files:
            return
        del self._known[inode]
        if known.watcher is not None:
            known.node.unwatch(known.watcher)
        for file in known.files:
            self._drop_if_unused(file)

    def entry_of(self, inode: int) -> E | None:
        """Return what was last told of *inode* if it still is so."""
        known = self._known.get(inode)
        return known.entry if known else None

    def tell(self, inode: int, size: int, entry: E) -> float:
        """Note what is about to be told of *inode*; return for how long the kernel may keep it, in seconds."""
        known = self._known.get(inode)
        if known is None:
            return 0.0
        known.told_size = size
        known.is_cached = known.watcher is not None
        if known.is_cached:
            known.entry = entry
        return CACHE_S if known.is_cached else 0.0

    def drop_attributes(self, inode: int) -> None:
        """Take the attributes out of the kernel's cache although nothing changed: it has made up a size."""
        known = self._known.get(inode)
        if known is not None:
            known.told_size = None
            if known.is_cached:
                known.is_cached = False
                self._invalidate(inode)

    def is_outdated(self, inode: int, size: int) -> bool:
        """Whether the kernel may still go by another size than *size*: it asks for attributes, not at each open."""
        known = self._known.get(inode)
        return known is not None and known.told_size != size

    def names_of(self, inode: int) -> list[str] | None:
        """Return the names from the root down to *inode*, as last looked up; None when one of them was forgotten."""
        names: list[str] = []
        while inode != ROOT_INODE:
            known = self._known.get(inode)
            if known is None:
                return None
            names.append(known.name)
            inode = known.parent
        return names[::-1]

    def inode_at(self, names: Sequence[str]) -> int | None:
        """Return the inode that was looked up by *names* from the root, by a search; None when one was not."""
        inode = ROOT_INODE
        for name in names:
            known = (n for n, k in self._known.items() if k.parent == inode and k.name == name and n != ROOT_INODE)
            found = next(known, None)
            if found is None:
                return None
            inode = found
        return inode

    def parent_of(self, inode: int) -> int:
        """Return the directory in which *inode* was last looked up; raises Stale for one that was forgotten."""
        self.node(inode)
        return self._known[inode].parent

    def _note_change(self, inode: int) -> None:
        known = self._known[inode]
        known.entry = None
        if known.is_cached:
            known.is_cached = False
            self._invalidate(inode)
        self._changed(inode)
