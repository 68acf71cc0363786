"""Where sessions and agents come and go in sight of those who watch for it."""

from collections.abc import Callable, Sequence
from typing import Protocol

Act = Callable[[], object]


class Stage(Protocol):
    """Carries out what makes, removes or renames a session or an agent, so that watchers can see it.

    A place is ``("session", NAME)`` or ``("session", NAME, "agent", NAME)``. Each method does *act* exactly once
    before it returns, and raises what *act* raises.
    """

    async def make(self, place: Sequence[str], act: Act) -> None:
        """Do *act*, after which the place is there."""

    async def remove(self, place: Sequence[str], act: Act) -> None:
        """Do *act*, after which the place is gone."""

    async def move(self, place: Sequence[str], name: str, act: Act) -> None:
        """Do *act*, after which the place has another *name*."""


class BareStage:
    """A stage that nobody watches."""

    async def make(self, place: Sequence[str], act: Act) -> None:
        act()

    async def remove(self, place: Sequence[str], act: Act) -> None:
        act()

    async def move(self, place: Sequence[str], name: str, act: Act) -> None:
        act()
