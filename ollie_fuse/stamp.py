"""When something last changed, and who wants to know."""

import time
from collections.abc import Callable


class Stamp:
    """The time of the last change of one thing; what it is part of changes with it.

    Watchers are called synchronously at each change and must not wait.
    """

    __slots__ = ("_above", "_watchers", "ns")

    def __init__(self, *above: "Stamp") -> None:
        self.ns = time.time_ns()
        self._above = above
        self._watchers: list[Callable[[], None]] = []

    def touch(self) -> None:
        """Note a change, now."""
        self._set(time.time_ns())

    def _set(self, ns: int) -> None:
        self.ns = ns
        for watcher in tuple(self._watchers):
            watcher()
        for stamp in self._above:
            stamp._set(ns)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call *watcher* at every change from now on."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Undo one ``watch``."""
        self._watchers.remove(watcher)
