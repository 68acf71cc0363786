"""The local provider, against the real model and without one."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from pydantic import SecretStr

from ollie_fuse.child import open_child
from ollie_fuse.config import BackendConfig
from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers import open_provider
from ollie_fuse.providers.base import ModelInfo, Rejected, Transient
from ollie_fuse.providers.local import LocalProvider
from ollie_fuse.providers.messages import Delta, Finished, Message, Request, Sampling, TextDelta
from ollie_fuse.providers.model_file import default_model_path
from ollie_fuse.providers.openai import OpenAIProvider

CONFIG = BackendConfig(section="local", kind="local")
REQUEST = Request(
    model="any",
    messages=(Message(role="user", text="Say hello."),),
    sampling=Sampling(max_tokens=8, temperature=0.0),
)
LONG = Request(model="any", messages=REQUEST.messages, sampling=Sampling(max_tokens=2000))


async def ask(provider: LocalProvider) -> list[Delta]:
    with trio.fail_after(60):
        async with provider.open_stream(REQUEST) as deltas:
            return [delta async for delta in deltas]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def wait_until_gone(pid: int) -> None:
    with trio.fail_after(10):
        while is_alive(pid):  # noqa: ASYNC110 - another's child has no event
            await trio.sleep(0.01)


@pytest.fixture
async def provider(nursery: trio.Nursery, model_data_dir: Path) -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(CONFIG, nursery, model_data_dir)
    yield provider
    await provider.aclose()


@pytest.mark.local_model
async def test_answers(provider: LocalProvider) -> None:
    """The model on this machine answers, and several first users share one start."""
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask, provider)
    pid = provider.pid
    deltas = await ask(provider)
    assert any(isinstance(delta, TextDelta) for delta in deltas)
    assert isinstance(deltas[-1], Finished)
    assert provider.pid == pid


@pytest.mark.local_model
async def test_key_is_needed(provider: LocalProvider) -> None:
    """Nobody else on the machine may ask: a request with no key or a wrong one is refused."""
    await ask(provider)
    assert provider.url is not None
    for key in (None, SecretStr("wrong-key")):
        stranger = OpenAIProvider(BackendConfig(section="x", url=provider.url, key=key))
        with pytest.raises(Rejected, match="API Key"):
            async with stranger.open_stream(REQUEST):
                pass
        with pytest.raises(Rejected, match="API Key"):
            await stranger.list_models()
        await stranger.aclose()


@pytest.mark.local_model
async def test_restarts_once(provider: LocalProvider) -> None:
    """A child that was killed is replaced for the next request; a second end soon after is told, not repaired."""
    await ask(provider)
    first = provider.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert isinstance((await ask(provider))[-1], Finished)
    second = provider.pid
    assert second is not None
    assert second != first
    os.kill(second, signal.SIGKILL)
    with pytest.raises(RemoteFailed, match="ended twice"):
        await ask(provider)
    assert provider.pid is None


@pytest.mark.local_model
async def test_child_that_dies_in_the_middle(provider: LocalProvider) -> None:
    """A stream whose child dies fails; nothing of it is silently asked again."""
    with trio.fail_after(60):
        async with provider.open_stream(LONG) as deltas:
            await anext(deltas)
            assert provider.pid is not None
            os.kill(provider.pid, signal.SIGKILL)
            with pytest.raises(Transient, match="local"):
                [delta async for delta in deltas]


@pytest.mark.local_model
async def test_ends_with_the_nursery(model_data_dir: Path) -> None:
    """Cancelling the owner's nursery ends the child, also in the middle of an answer."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            provider = LocalProvider(CONFIG, nursery, model_data_dir)
            async with provider.open_stream(LONG) as deltas:
                await anext(deltas)
                pid = provider.pid
                nursery.cancel_scope.cancel()
    assert pid is not None
    assert not is_alive(pid)


@pytest.mark.local_model
async def test_close_ends_the_child(nursery: trio.Nursery, model_data_dir: Path) -> None:
    """A provider that was closed has no child left."""
    provider = LocalProvider(CONFIG, nursery, model_data_dir)
    await ask(provider)
    pid = provider.pid
    assert pid is not None
    await provider.aclose()
    assert not is_alive(pid)


@pytest.mark.local_model
async def test_window(nursery: trio.Nursery, model_data_dir: Path) -> None:
    """The window is the model's own up to a limit, or what is configured, and listing starts nothing."""
    small = CONFIG.model_copy(update={"window": 512})
    for config, window in ((CONFIG, 8192), (small, 512)):
        provider = LocalProvider(config, nursery, model_data_dir)
        assert await provider.list_models() == (ModelInfo(name="SmolLM2-135M-Instruct.Q4_1", window=window),)
        assert provider.pid is None


PARENT = """
import sys, trio
from pathlib import Path
from tests.providers.test_local import CONFIG, REQUEST
from ollie_fuse.providers.local import LocalProvider

async def main():
    async with trio.open_nursery() as nursery:
        provider = LocalProvider(CONFIG, nursery, Path(sys.argv[1]))
        async with provider.open_stream(REQUEST):
            print(provider.pid, flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.local_model
async def test_child_ends_with_a_killed_parent(model_data_dir: Path) -> None:
    """A daemon killed with SIGKILL, which cleans nothing up, leaves no model process behind."""
    root = str(Path(__file__).parents[2])
    argv = [sys.executable, "-c", PARENT, str(model_data_dir)]
    with trio.fail_after(60):
        async with open_child(argv, stdout="pipe", cwd=root) as parent:
            pid = int(await parent.stdout.receive_some())
            assert is_alive(pid)
            os.kill(parent.pid, signal.SIGKILL)
            await wait_until_gone(pid)


async def test_missing_model(nursery: trio.Nursery, tmp_path: Path) -> None:
    """Without its file the local model says what to do; another's file that is missing is named."""
    provider = open_provider(CONFIG, nursery, tmp_path)
    with pytest.raises(Rejected, match="ollie-fuse fetch-model"):
        await provider.list_models()
    with pytest.raises(Rejected, match="fetch-model"):
        async with provider.open_stream(REQUEST):
            pass
    other = open_provider(CONFIG.model_copy(update={"model": "/nowhere/x.gguf"}), nursery, tmp_path)
    with pytest.raises(Rejected, match=r"/nowhere/x\.gguf"):
        await other.list_models()


async def test_damaged_model(nursery: trio.Nursery, tmp_path: Path) -> None:
    """A file that is no model is told when the child gives up, with no process left."""
    pytest.importorskip("xllamacpp")
    path = default_model_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF" + b"\0" * 100)
    provider = LocalProvider(CONFIG, nursery, tmp_path)
    with pytest.raises(RemoteFailed, match="did not start"):
        await ask(provider)
    assert provider.pid is None


async def test_script_ends_with_its_stdin(tmp_path: Path) -> None:
    """The child answers one line, why it failed, and ends."""
    script = Path(open_provider.__code__.co_filename).with_name("local_server.py")
    order = {"model": str(tmp_path / "none.gguf"), "alias": "a", "key": "k", "window": 512}
    with trio.fail_after(30):
        async with open_child([sys.executable, "-P", str(script)], stdin="pipe", stdout="pipe") as child:
            await child.stdin.send_all(json.dumps(order).encode() + b"\n")
            assert (await child.stdout.receive_some()).startswith(b"failed ")
            assert await child.wait() == 1
