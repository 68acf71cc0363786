"""The scripted server as a process, as tests that drive a real daemon use it."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from ollie_fuse.child import open_child
from ollie_fuse.config import BackendConfig
from ollie_fuse.providers.base import Transient
from ollie_fuse.providers.messages import Message, Request, TextDelta
from ollie_fuse.providers.openai import OpenAIProvider

ROOT = str(Path(__file__).parents[2])


@pytest.fixture
async def provider() -> AsyncIterator[OpenAIProvider]:
    argv = [sys.executable, "-m", "tests.fakes.model_server"]
    async with open_child(argv, cwd=ROOT, stdin="pipe", stdout="pipe") as child:
        word, _, url = (await child.stdout.receive_some()).decode().strip().partition(" ")
        assert word == "ready"
        provider = OpenAIProvider(BackendConfig(section="fake", url=url))
        yield provider
        await provider.aclose()
        await child.stdin.aclose()
        with trio.fail_after(5):
            assert await child.wait() == 0


async def ask(provider: OpenAIProvider, text: str) -> list[str]:
    request = Request(model="fake-1", messages=(Message(role="user", text=text),))
    with trio.fail_after(10):
        async with provider.open_stream(request) as deltas:
            return [delta.text async for delta in deltas if isinstance(delta, TextDelta)]


async def test_obeys_the_prompt(provider: OpenAIProvider, tmp_path: Path) -> None:
    """Each `@fake` line does what the module says, and the server outlives what it was told to break."""
    assert "".join(await ask(provider, "hello")) == "You said: hello"
    assert await ask(provider, "now\n@fake say all of this") == ["all of this"]
    assert len(await ask(provider, "@fake chunks 20 delay 0.001")) == 20
    assert len("".join(await ask(provider, "@fake size 100000"))) == 100_000
    with pytest.raises(Transient, match="HTTP 500"):
        await ask(provider, "@fake status 500")
    with pytest.raises(Transient):
        await ask(provider, "@fake cut")
    with trio.move_on_after(0.1) as scope:
        await ask(provider, "@fake hold")
    assert scope.cancelled_caught
    await _ask_until(provider, tmp_path / "go")


async def _ask_until(provider: OpenAIProvider, path: Path) -> None:
    answers: list[list[str]] = []

    async def wait_for_it() -> None:
        answers.append(await ask(provider, f"@fake until {path}\n@fake say gone"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_it)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        path.touch()  # noqa: ASYNC240 - a test's own directory
    assert answers == [["gone"]]
