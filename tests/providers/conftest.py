import os
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from ollie_fuse.config import BackendConfig
from ollie_fuse.providers.openai import OpenAIProvider
from tests.fakes.model_server import ModelServer, open_model_server

KEY = "sk-never-to-be-seen-9f8e7d"
HEADER = "header-never-to-be-seen-1a2b3c"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the user's changes where a request goes."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with open_model_server() as server:
        yield server


@pytest.fixture
def config(server: ModelServer) -> BackendConfig:
    return BackendConfig.model_validate(
        {
            "section": "fake",
            "url": server.url,
            "key": KEY,
            "headers": {"X-Secret": HEADER},
            "call-timeout": "5",
        }
    )


@pytest.fixture
async def provider(config: BackendConfig) -> AsyncIterator[OpenAIProvider]:
    provider = OpenAIProvider(config)
    yield provider
    await provider.aclose()


@pytest.fixture
def unused_tcp_url() -> Iterator[str]:
    """Give a URL where a socket is bound and nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
