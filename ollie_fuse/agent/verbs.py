"""A line of a command file → a verb of its table and its arguments."""

import difflib
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ollie_fuse.errors import Invalid, OllieError

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


_LINE = re.compile(r"\s*(\S+)(?:\s(.*))?", re.DOTALL)


def parse_line(line: str, table: Table[S]) -> Command[S]:
    """Parse one command; raises Invalid with the sentence that helps."""
    match = _LINE.fullmatch(line)
    name, rest = (match[1], match[2] or "") if match else ("", "")
    verb = table.get(name.removeprefix("/").lower())
    if verb is None:
        raise Invalid(_unknown(name, table))
    words = (rest,) if verb.takes_text and rest else _words(rest)
    least, most = verb.arity
    if not least <= len(words) <= most:
        raise Invalid(f"usage: {verb.usage}")
    return Command(verb=verb, arguments=words)


def parse_lines(text: str, table: Table[S]) -> list[tuple[int, Command[S]]]:
    """Parse every line, blank ones and comments apart, with its number; raises Invalid before any is carried out."""
    commands = []
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            commands.append((number, parse_line(line, table)))
        except Invalid as exc:
            raise numbered(exc, number, len(lines), "; nothing was done") from None
    return commands


def numbered(exc: OllieError, number: int, count: int, effect: str) -> OllieError:
    """Return *exc* saying which of *count* lines it is about, and to what *effect* on those before."""
    return exc if count == 1 else type(exc)(f"line {number}: {exc}{effect}")


async def run_lines(
    text: str, table: Table[S], run: Callable[[Command[S]], Awaitable[str]], *, undo: Callable[[], None] | None = None
) -> str:
    """Carry out the lines of a command file in order and return their answers.

    The first that fails ends it. *undo*, where there is one, takes back what the lines before it have set.
    """
    answers = []
    commands = parse_lines(text, table)
    for number, command in commands:
        try:
            answers.append(await run(command))
        except OllieError as exc:
            if undo is not None:
                undo()
            effect = "; the lines before it were carried out" if undo is None else "; no setting was changed"
            raise numbered(exc, number, len(commands), effect if number > 1 else "") from None
    return "".join(answers)


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
