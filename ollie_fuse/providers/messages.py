"""What is said to a model and what comes back: plain values, no wire format."""

import enum
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Generation parameters; None leaves the choice to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model call."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call; None is what the provider did not report."""

    input_tokens: int | None = None
    """Everything that was read, cached tokens included."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of the input that came from the provider's cache."""


class StopReason(enum.Enum):
    """Why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """A piece of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDelta:
    """The counts of this call; a later one replaces an earlier one."""

    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The model is done; a stream that ends without one was cut off."""

    reason: StopReason


Delta = TextDelta | ReasoningDelta | UsageDelta | Finished
