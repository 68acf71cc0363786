"""The package's door."""

import sys
from typing import get_args

from ollie_fuse import config, providers
from ollie_fuse.child import run_child


async def test_idle_is_light() -> None:
    """Importing the door loads neither httpx nor llama.cpp, and opening a backend makes no connection or child."""
    code = "import ollie_fuse.providers, sys; print(sorted({'httpx', 'xllamacpp', 'pydantic'} & set(sys.modules)))"
    output = await run_child([sys.executable, "-c", code], timeout_s=30)
    assert output.text == "[]\n"


def test_every_kind_opens() -> None:
    """Each kind that the configuration knows has a provider."""
    assert set(providers._KINDS) == set(get_args(config.Kind))
