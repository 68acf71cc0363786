"""What every provider is, and how one fails."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.messages import Delta, Request


class RateLimited(RemoteFailed):
    """The provider wants fewer requests."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Transient(RemoteFailed):
    """A failure of the network or the server; the same request may succeed later."""


class Overflow(RemoteFailed):
    """The request does not fit into the model's context window."""


class Rejected(RemoteFailed):
    """The provider refuses this request: authentication, billing, an unknown model, a wrong parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One model that a backend offers."""

    name: str
    window: int | None = None
    """Context window in tokens, where the provider tells it."""


class Provider(Protocol):
    """One configured model endpoint. Its owner closes it with ``aclose``."""

    def open_stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send *request* and stream its deltas.

        Waits for the response's head before it yields. Ends after ``Finished``. Raises one of this module's
        errors, before or in the middle of the stream, a stream that ends without ``Finished`` included
        (``Transient``). Leaving the context, also by cancellation, ends the request at the provider.
        """

    async def list_models(self) -> tuple[ModelInfo, ...]:
        """Ask which models there are; waits for the network and raises as ``open_stream`` does."""

    async def aclose(self) -> None:
        """Close connections and end whatever was started for this provider."""
