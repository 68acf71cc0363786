"""Talking to models: one file a wire format, one transport under all of them."""

from pathlib import Path
from typing import TYPE_CHECKING

from ollie_fuse.providers.base import (
    ModelInfo,
    Overflow,
    Provider,
    RateLimited,
    Rejected,
    Transient,
)
from ollie_fuse.providers.messages import (
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    StopReason,
    TextDelta,
    Usage,
    UsageDelta,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from ollie_fuse.config import BackendConfig

__all__ = [
    "Delta",
    "Finished",
    "Message",
    "ModelInfo",
    "Overflow",
    "Provider",
    "RateLimited",
    "ReasoningDelta",
    "Rejected",
    "Request",
    "Sampling",
    "StopReason",
    "TextDelta",
    "Transient",
    "Usage",
    "UsageDelta",
    "default_model_path",
    "fetch_default_model",
    "open_provider",
]


def open_provider(config: "BackendConfig", nursery: "trio.Nursery", data_dir: Path) -> Provider:
    """Return the provider that *config* describes; the caller closes it.

    Starts and connects nothing. What a provider starts later lives in *nursery* and ends with it.
    """
    return _KINDS[config.kind](config, nursery, data_dir)


def default_model_path(data_dir: Path) -> Path:
    """Return where our own model is, or would be."""
    from ollie_fuse.providers import model_file

    return model_file.default_model_path(data_dir)


async def fetch_default_model(data_dir: Path) -> Path:
    """See ``model_file.fetch_default_model``."""
    from ollie_fuse.providers import model_file

    return await model_file.fetch_default_model(data_dir)


# Imported when first needed: with httpx an idle daemon would be 10 MB larger.


def _open_openai(config: "BackendConfig", _nursery: "trio.Nursery", _data_dir: Path) -> Provider:
    from ollie_fuse.providers.openai import OpenAIProvider

    return OpenAIProvider(config)


def _open_local(config: "BackendConfig", nursery: "trio.Nursery", data_dir: Path) -> Provider:
    from ollie_fuse.providers.local import LocalProvider

    return LocalProvider(config, nursery, data_dir)


_KINDS: "dict[str, Callable[[BackendConfig, trio.Nursery, Path], Provider]]" = {
    "openai": _open_openai,
    "local": _open_local,
}
"""One row a kind of backend; ``config.Kind`` names the same ones."""
