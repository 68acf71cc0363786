"""What is written to ``new``: ``key=value`` words, quoted as in a shell."""

import difflib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ollie_fuse.errors import Exists, Invalid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a spec: what it means, and what stands when it is left out."""

    name: str
    default: str
    help: str
    is_repeatable: bool = False


RESERVED = frozenset({"new", "idx"})
"""Names that stand beside those of sessions and agents."""


def check_name(name: str) -> str:
    """Return *name* if a session or an agent may have it; raises Invalid, Exists for one that is reserved."""
    if name in RESERVED:
        raise Exists(f"{name!r} is part of the tree")
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:64]!r} is not a name: 1 to 64 letters, digits, dots, dashes and underscores,"
            " beginning with a letter or digit"
        )
    return name


def parse_spec(text: str, keys: Mapping[str, Key]) -> dict[str, list[str]]:
    """Parse a spec into the values of each key given; raises Invalid for what is no known ``key=value``."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as exc:
        raise Invalid(f"the spec does not parse: {exc}".lower()) from None
    given: dict[str, list[str]] = {}
    for word in words:
        name, has_value, value = word.partition("=")
        if not has_value:
            raise Invalid(f"{word[:64]!r} is not key=value; quote values with spaces")
        if name not in keys:
            raise Invalid(_unknown(name, keys))
        if name in given and not keys[name].is_repeatable:
            raise Invalid(f"{name} is given twice")
        given.setdefault(name, []).append(value)
    return given


def render_template(keys: Mapping[str, Key]) -> str:
    """Show every key with its default and its meaning, as comments around an empty spec."""
    lines = ["# write key=value words to this file; what is left out stands as shown here", ""]
    lines += (f"# {key.name}={key.default:<24}  {key.help}" for key in keys.values())
    return "\n".join(lines) + "\n"


def _unknown(name: str, keys: Mapping[str, Key]) -> str:
    close = difflib.get_close_matches(name, keys, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"keys: {', '.join(keys)}"
    return f"there is no key {name[:64]!r}; {hint}"
