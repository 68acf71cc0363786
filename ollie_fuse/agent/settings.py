"""What a user can set for an agent, as the lines of ``ctl`` that set it."""

import shlex
from dataclasses import dataclass, replace
from typing import Any

from ollie_fuse.errors import Invalid
from ollie_fuse.providers import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One agent's choices."""

    backend: str
    model: str | None = None
    """None for the backend's default, whatever it is when a turn begins."""
    sampling: Sampling = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """A sampling parameter: its field, and the numbers it may be."""

    field: str
    low: float
    high: float
    is_whole: bool
    help: str


SAMPLING: dict[str, _Parameter] = {
    "temperature": _Parameter(field="temperature", low=0, high=2, is_whole=False, help="randomness, 0 to 2"),
    "topP": _Parameter(field="top_p", low=0, high=1, is_whole=False, help="nucleus sampling, 0 to 1"),
    "maxTokens": _Parameter(field="max_tokens", low=1, high=1 << 24, is_whole=True, help="longest answer, in tokens"),
    "frequencyPenalty": _Parameter(
        field="frequency_penalty", low=-2, high=2, is_whole=False, help="against repetition, -2 to 2"
    ),
    "presencePenalty": _Parameter(
        field="presence_penalty", low=-2, high=2, is_whole=False, help="against known words, -2 to 2"
    ),
}
"""The generation parameters by the name that sets them."""

DEFAULT = "default"
"""The value that leaves a parameter to the provider."""


def parse_sampling(name: str, value: str, sampling: Sampling) -> Sampling:
    """Return *sampling* with one parameter set from text; raises Invalid when it is out of range."""
    parameter = SAMPLING[name]
    if value == DEFAULT:
        return _with(sampling, parameter.field, None)
    try:
        number = int(value[:64]) if parameter.is_whole else float(value)
    except ValueError:
        kind = "a whole number" if parameter.is_whole else "a number"
        raise Invalid(f"{name} is {kind} or '{DEFAULT}', not {value[:64]!r}") from None
    if not parameter.low <= number <= parameter.high:  # false for NaN too
        raise Invalid(f"{name} goes from {parameter.low:g} to {parameter.high:g}, not {value[:64]}")
    return _with(sampling, parameter.field, number)


def _with(sampling: Sampling, field: str, value: float | None) -> Sampling:
    changed: dict[str, Any] = {field: value}  # Any: a field's name is only known at run time
    return replace(sampling, **changed)


def render_settings(settings: Settings) -> str:
    """Write every setting as the line that sets it."""
    model = DEFAULT if settings.model is None else shlex.quote(settings.model)
    lines = [f"backend {shlex.quote(settings.backend)}", f"model {model}"]
    for name, parameter in SAMPLING.items():
        value = getattr(settings.sampling, parameter.field)
        lines.append(f"{name} {DEFAULT if value is None else value}")
    return "".join(f"{line}\n" for line in lines)
