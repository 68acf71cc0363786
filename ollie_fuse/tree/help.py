"""Help, generated from the tables of files and of verbs."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ollie_fuse.agent import Verb
from ollie_fuse.tree.row import Row

T = TypeVar("T")


def render_files(place: str, rows: Sequence[Row[T]]) -> str:
    """List the files of one directory, a line each."""
    return "".join(f"{place + row.name:<32} {row.mode:<4} {row.help}\n" for row in rows)


def render_verbs(file: str, verbs: Mapping[str, Verb[T]]) -> str:
    """List the commands of one file, a line each, under a title."""
    once = {verb.name: verb for verb in verbs.values()}
    return f"\ncommands of {file}:\n" + "".join(f"  {verb.usage:<26} {verb.help}\n" for verb in once.values())
