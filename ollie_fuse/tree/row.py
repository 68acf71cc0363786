"""A row of the tree's table, and what several rows are made with."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ollie_fuse.agent import Backends, Events, Session, Sessions, Totals, Verb
from ollie_fuse.nodes import CommandTalk, ConversationFile, Node, complete_spec
from ollie_fuse.stamp import Stamp

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One file: its name, its mode as help shows it, what it does, and how its node is made."""

    name: str
    mode: str
    help: str
    node: Callable[[T], Node]


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What the tree stands on: the engine, and what the daemon does itself."""

    sessions: Sessions
    config: Path
    status: Callable[[], str]
    verbs: Mapping[str, Verb["Root"]]
    """The commands of the root's ``ctl``."""
    settings: Callable[[], str]
    """Daemon settings as the lines that would set them."""
    settings_changed: Stamp
    started: Stamp

    @property
    def backends(self) -> Backends:
        """The configured backends."""
        return self.sessions.backends

    @property
    def events(self) -> Events:
        """The daemon's events."""
        return self.sessions.events


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """A session in its tree."""

    session: Session
    root: Root


def new_file(
    creator: Callable[[str | None], Callable[[str], Awaitable[str]]],
    template: str,
    stamp: Stamp,
) -> Node:
    """Make a file that takes a spec and answers with the name of what it made for a caller in its directory."""
    return ConversationFile(
        lambda caller: CommandTalk(lambda: template, creator(caller.cwd()), report_nowhere, complete_spec),
        lambda: len(template.encode()),
        stamp,
        may_answer_later=False,
    )


def report_nowhere(_sentence: str) -> None:
    """There is no ``error`` file at this level: the sentence is read back on the same open file alone."""


def tabbed(rows: Iterable[Sequence[str | int]]) -> str:
    """Write rows as tab-separated lines."""
    return "".join("\t".join(str(cell) for cell in row) + "\n" for row in rows)


def render_cost(total: Totals) -> str:
    """Write a sum of money, or that it is unknown."""
    return "unavailable" if total.cost_usd is None else f"{total.cost_usd:.6f}"
