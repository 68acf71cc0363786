"""The user's configuration as values: which model endpoints there are, read once from ``backends.conf``.

A mistake is a value too. One wrong section is left out and reported with its line; every other one works.
"""

import configparser
import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

Kind = Literal["openai", "local"]

OPENAI_URL = "https://api.openai.com/v1"
CALL_TIMEOUT_S = 300.0

_VERSION = re.compile(r"/v\d+\w*(?=/|$)")


def _parse_tokens(value: object) -> object:
    if isinstance(value, str) and not (value.isdecimal() and int(value) > 0):
        raise ValueError(f"{value!r} is not a number of tokens")
    return value


def _parse_seconds(value: object) -> object:
    if isinstance(value, str) and not _number(value) > 0:
        raise ValueError(f"{value!r} is not a number of seconds")
    return value


def _parse_url(value: object) -> object:
    """Accept http and https with a host, and bring both customs, with ``/v1`` and without, to one.

    A path that holds a version of its own (``/v1beta/openai``, ``/api/paas/v4``) stays as it is.
    """
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # a port that is no number, a bracket that does not close, a host name with an empty label
        is_good = False
    if not is_good or parts.username or parts.query or parts.fragment:
        raise ValueError("is not of the form http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")
    base = value.rstrip("/")
    return base if _VERSION.search(parts.path) else f"{base}/v1"


def _parse_models(value: object) -> object:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _parse_price(value: object) -> object:
    if not isinstance(value, str):
        return value
    numbers = [_number(word.strip()) for word in value.split("/")]
    if len(numbers) not in {2, 3} or not all(number >= 0 for number in numbers):
        raise ValueError(f"{value!r} is not IN/OUT or IN/OUT/CACHE in USD for a million tokens")
    return dict(zip(("input", "output", "cache"), numbers, strict=False))


def _parse_kind(value: object) -> object:
    if value not in get_args(Kind):
        raise ValueError(f"{value!r} is unknown; there are {', '.join(get_args(Kind))}")
    return value


def _parse_header_value(value: object) -> object:
    """Refuse what cannot stand in an HTTP header, since the complaint of the HTTP library would quote it."""
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        raise ValueError("may hold only printable ASCII, on one line")
    return value


def _number(text: str) -> float:
    """Parse *text*; NaN, which is neither above nor below anything, when it is no finite number."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


HeaderSecret = Annotated[SecretStr, BeforeValidator(_parse_header_value)]


class _Model(BaseModel):
    """What all configuration shares: unknown keys are errors, values do not change, inputs are not quoted."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True)


class Price(_Model):
    """What a million tokens cost, in USD."""

    input: float
    output: float
    cache: float | None = None
    """Input tokens read from the provider's cache; None when not told."""


class BackendConfig(_Model):
    """One model endpoint, as one section of the file describes it."""

    section: str
    """The name by which commands choose it."""
    kind: Annotated[Kind, BeforeValidator(_parse_kind)] = "openai"
    name: str = ""
    """For people; the section's name when not given."""
    url: Annotated[str, BeforeValidator(_parse_url)] = OPENAI_URL
    """Where ``/chat/completions`` is appended, with ``/v1`` at its end as a rule; not for kind ``local``."""
    key: HeaderSecret | None = None
    key_env: str | None = Field(default=None, alias="key-env")
    """The variable that the key was to come from; with ``key`` None it was not set."""
    model: str | None = None
    """The model used when none is asked for; for kind ``local`` the GGUF file, None for our own."""
    models: Annotated[tuple[str, ...], BeforeValidator(_parse_models)] = ()
    window: Annotated[int | None, BeforeValidator(_parse_tokens)] = None
    price: Annotated[Price | None, BeforeValidator(_parse_price)] = None
    call_timeout_s: Annotated[float, BeforeValidator(_parse_seconds)] = Field(
        default=CALL_TIMEOUT_S, alias="call-timeout"
    )
    """How long an answer may stand still."""
    headers: Mapping[str, HeaderSecret] = {}

    @property
    def title(self) -> str:
        """What messages to people call it."""
        return self.name or self.section

    @property
    def is_key_missing(self) -> bool:
        """Whether a key was to come from the environment and did not."""
        return self.key is None and self.key_env is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key that a section may hold."""

    name: str
    kinds: frozenset[str]
    doc: str


_ALL = frozenset(get_args(Kind))
_REMOTE = frozenset({"openai"})

KEYS: tuple[Key, ...] = (
    Key(name="kind", kinds=_ALL, doc="`openai` (the default: any server that speaks its API) or `local`"),
    Key(name="name", kinds=_ALL, doc="what people call it"),
    Key(name="url", kinds=_REMOTE, doc=f"where it is, with or without /v1; {OPENAI_URL} when absent"),
    Key(name="key", kinds=_REMOTE, doc="the API key; better in the environment, by key-env"),
    Key(name="key-env", kinds=_REMOTE, doc="the environment variable that holds the API key; wins over key"),
    Key(name="model", kinds=_ALL, doc="the model used by default; for `local` a GGUF file, ours when absent"),
    Key(name="models", kinds=_REMOTE, doc="the models to offer, instead of asking the server"),
    Key(name="window", kinds=_ALL, doc="the context window in tokens, where the server does not tell it"),
    Key(name="price", kinds=_REMOTE, doc="IN/OUT or IN/OUT/CACHE, in USD for a million tokens"),
    Key(
        name="call-timeout",
        kinds=_ALL,
        doc=f"seconds an answer may stand still; {CALL_TIMEOUT_S:g} when absent",
    ),
)
"""Besides these a section may hold any number of ``header NAME`` keys, each one HTTP header."""

_HEADER = re.compile(r"header\s+([!#$%&'*+.^_`|~0-9A-Za-z-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Something in the file that cannot be meant; ``str()`` is a sentence that never quotes a secret."""

    file: str
    sentence: str
    line: int | None = None
    key: str | None = None
    backend: str | None = None

    def __str__(self) -> str:
        """``backends.conf:12: key 'modle' is unknown``."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.sentence}"


LOCAL = BackendConfig(section="local", kind="local")
"""What there is when nothing is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendsFile:
    """What the file says."""

    backends: tuple[BackendConfig, ...]
    """Never empty; the first is the default."""
    mistakes: tuple[Mistake, ...] = ()


def read_backends(path: Path, environ: Mapping[str, str]) -> BackendsFile:
    """Read *path*; a missing file is no mistake, and whatever is wrong in it is a value, not an exception."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return BackendsFile(backends=(LOCAL,))
    except OSError as exc:
        return _nothing_read(path, f"it cannot be read: {exc.strerror}")
    except UnicodeDecodeError:
        return _nothing_read(path, "it is not UTF-8")
    return parse_backends(text, environ, file=path.name)


def _nothing_read(path: Path, sentence: str) -> BackendsFile:
    return BackendsFile(backends=(LOCAL,), mistakes=(Mistake(file=path.name, sentence=sentence),))


def parse_backends(text: str, environ: Mapping[str, str], *, file: str = "backends.conf") -> BackendsFile:
    """Parse the file's *text*; keys named by ``key-env`` are taken from *environ* now."""
    backends: dict[str, BackendConfig] = {}
    mistakes: list[Mistake] = []
    for section in _sections(text):
        try:
            if section.name in backends:
                raise _Wrong(f"section [{section.name}] is there twice; the first one counts")
            backends[section.name] = _backend_of(section, environ)
        except _Wrong as exc:
            mistakes += [replace(mistake, file=file) for mistake in exc.mistakes(section)]
    return BackendsFile(backends=tuple(backends.values()) or (LOCAL,), mistakes=tuple(mistakes))


class _Wrong(Exception):
    """A section that cannot be used: one sentence, or one for each key."""

    def __init__(self, sentence: str = "", *, line: int | None = None, by_key: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self._line = line
        self._sentences: list[tuple[str | None, str]] = list((by_key or {}).items()) or [(None, sentence)]

    def mistakes(self, section: "_Section") -> Iterator[Mistake]:
        for key, sentence in self._sentences:
            line = self._line or section.line_of(key)
            yield Mistake(file="", sentence=sentence, line=line, key=key, backend=section.name or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """The lines of one section, its head included; nameless before the first head."""

    name: str
    first_line: int
    lines: tuple[str, ...]

    def line_of(self, key: str | None) -> int:
        """Find the number of the line that sets *key*, else of the head; configparser does not keep them."""
        setting = re.compile(rf"\s*{re.escape(key or '')}\s*[=:]")
        matches = (number for number, line in enumerate(self.lines) if key and setting.match(line))
        return self.first_line + next(matches, 0)


_HEAD = re.compile(r"\s*\[(.+?)\]")


def _sections(text: str) -> Iterator[_Section]:
    """Cut *text* at its section heads, so that a line that does not parse spoils its own section alone."""
    lines = text.splitlines()
    heads = [(number, match[1].strip()) for number, line in enumerate(lines) if (match := _HEAD.match(line))]
    ends = [number for number, _ in heads[1:]] + [len(lines)]
    before = lines[: heads[0][0] if heads else len(lines)]
    if any(line.strip() and not line.lstrip().startswith(("#", ";")) for line in before):
        yield _Section(name="", first_line=1, lines=tuple(before))
    for (start, name), end in zip(heads, ends, strict=False):
        yield _Section(name=name, first_line=start + 1, lines=tuple(lines[start:end]))


def _backend_of(section: _Section, environ: Mapping[str, str]) -> BackendConfig:
    settings = _settings_of(section)
    kind = settings.get("kind", "openai")
    unknown = {key: sentence for key in settings if (sentence := _why_not(key, kind))}
    plain = {key: value for key, value in settings.items() if key not in unknown and not _HEADER.fullmatch(key)}
    headers = {match[1]: value for key, value in settings.items() if (match := _HEADER.fullmatch(key))}
    key = environ.get(plain.get("key-env", ""), "").strip() or plain.get("key") or None
    try:
        backend = BackendConfig.model_validate({**plain, "section": section.name, "headers": headers, "key": key})
    except ValidationError as exc:
        raise _Wrong(by_key=unknown | _sentences(exc)) from None  # the cause would hold the values
    if unknown:
        raise _Wrong(by_key=unknown)
    return backend


def _settings_of(section: _Section) -> dict[str, str]:
    if not section.name:
        raise _Wrong("there is a line before the first [section]")
    # An impossible default section makes [DEFAULT] a name like any other.
    parser = configparser.ConfigParser(interpolation=None, default_section="\0", empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # how its own manual keeps the case
    body = "\n".join(("[section]", *section.lines[1:]))
    try:
        parser.read_string(body)
    except configparser.DuplicateOptionError as exc:
        raise _Wrong(by_key={exc.option: f"key {exc.option!r} is there twice"}) from None
    except configparser.ParsingError as exc:  # its own message quotes the line, which may hold a key
        number = exc.errors[0][0] if exc.errors else 1
        raise _Wrong("the line is not of the form KEY = VALUE", line=section.first_line + number - 1) from None
    return dict(parser["section"])


def _why_not(key: str, kind: str) -> str | None:
    """Say why *key* may not stand in a section of *kind*; None when it may."""
    known = {row.name: row for row in KEYS}
    if key in known:
        is_meant = kind not in _ALL or kind in known[key].kinds
        return None if is_meant else f"key {key!r} means nothing for kind {kind!r}"
    if _HEADER.fullmatch(key):
        return None if kind != "local" else f"key {key!r} means nothing for kind {kind!r}"
    near = difflib.get_close_matches(key.lower(), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"key {key!r} is unknown{hint}"


def _sentences(exc: ValidationError) -> dict[str, str]:
    """One sentence for each key that *exc* complains about."""
    sentences = {}
    for error in exc.errors(include_url=False, include_context=False, include_input=False):
        place = [str(part) for part in error["loc"]]
        key = f"header {place[1]}" if place[0] == "headers" else place[0]
        sentences[key] = f"{key} {error['msg'].removeprefix('Value error, ')}"
    return sentences
