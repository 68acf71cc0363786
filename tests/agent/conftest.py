from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from tests.agent.scripted_provider import Engine, open_engine


@pytest.fixture
async def engine(autojump_clock: MockClock) -> AsyncIterator[Engine]:
    async with open_engine() as engine:
        yield engine
