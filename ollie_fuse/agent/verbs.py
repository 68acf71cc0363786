"""A line of a command file → a verb of its table and its arguments."""

import difflib
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ollie_fuse.errors import Invalid

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Generic[S]):
    """One command of a subject: how it is spelled, what it takes, what it does."""

    name: str
    arguments: str = ""
    """As help shows them: ``NAME`` is needed, ``[NAME]`` is not, one that ends in ``…`` takes the rest of the line."""
    help: str
    run: Callable[[S, Sequence[str]], Awaitable[str]]
    """Act and return the answer, empty for none; raises to refuse, having changed nothing."""
    is_allowed_in_turn: bool = True
    is_allowed_in_prompt: bool = True

    @property
    def arity(self) -> tuple[int, int]:
        """The least and the most arguments."""
        words = self.arguments.split()
        return sum(not word.startswith("[") for word in words), len(words)

    @property
    def takes_text(self) -> bool:
        """Whether the rest of the line is one raw argument."""
        return self.arguments.endswith("…")

    @property
    def usage(self) -> str:
        """The verb with its arguments."""
        return f"{self.name} {self.arguments}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[S]):
    """A verb with the arguments of one line, checked against its arity."""

    verb: Verb[S]
    arguments: tuple[str, ...]


Table = Mapping[str, Verb[S]]
"""Verbs by their name in lower case; an alias is one more key."""


def table_of(*verbs: Verb[S], aliases: Mapping[str, str] | None = None) -> dict[str, Verb[S]]:
    """Make a table of *verbs* and of other spellings for them."""
    table = {verb.name.lower(): verb for verb in verbs}
    return table | {alias: table[name.lower()] for alias, name in (aliases or {}).items()}


def parse_line(line: str, table: Table[S]) -> Command[S]:
    """Parse one command; raises Invalid with the sentence that helps."""
    name, _, rest = line.strip().partition(" ")
    verb = table.get(name.removeprefix("/").lower())
    if verb is None:
        raise Invalid(_unknown(name, table))
    words = (rest.strip(),) if verb.takes_text and rest.strip() else _words(rest)
    least, most = verb.arity
    if not least <= len(words) <= most:
        raise Invalid(f"usage: {verb.usage}")
    return Command(verb=verb, arguments=words)


def parse_lines(text: str, table: Table[S]) -> list[tuple[int, Command[S]]]:
    """Parse every line, blank ones and comments apart, with its number; raises Invalid before any is carried out."""
    commands = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            commands.append((number, parse_line(line, table)))
        except Invalid as exc:
            if len(text.strip().splitlines()) == 1:  # no need to say which
                raise
            raise Invalid(f"line {number}: {exc}; nothing was done") from None
    return commands


def _words(rest: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(rest))
    except ValueError as exc:
        raise Invalid(f"{exc} in {rest!r}".lower()) from None


def _unknown(name: str, table: Table[S]) -> str:
    close = difflib.get_close_matches(name.lower(), table, n=1)
    hint = f"did you mean {table[close[0]].name!r}?" if close else f"verbs: {', '.join(names_of(table))}"
    return f"there is no command {name[:64]!r}; {hint}"


def names_of(table: Table[S]) -> list[str]:
    """The verbs of a table once each, in its order."""
    return list(dict.fromkeys(verb.name for verb in table.values()))
