"""What holds for every test: no file of the user's, no network but loopback, no warning that nobody announced."""

import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ollie_fuse.providers import fetch_default_model


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--long`` runs the searches for rare faults at their full length, which takes minutes."""
    parser.addoption("--long", action="store_true", help="run rare-fault searches at their full length")


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether to search at full length."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def model_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory that holds our own model: the one that is given, else a fresh download."""
    given = os.environ.get("OLLIE_TEST_MODEL_DIR")
    path = Path(given) if given else tmp_path_factory.mktemp("data")
    trio.run(fetch_default_model, path)
    return path


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every place that the package would look for is in the test's own folder."""
    for name in list(os.environ):
        if name.startswith(("OLLIE", "OPENAI_")) and not name.startswith("OLLIE_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for kind in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to anywhere but this machine is a failure."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0] if isinstance(address, tuple) else ""
            assert ipaddress.ip_address(str(host)).is_loopback, f"a test connects to {host}"
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def _quiet_log(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A logged WARNING fails a test that is not marked ``logs_warnings``."""
    yield
    if request.node.get_closest_marker("logs_warnings"):
        return
    loud = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
    assert not loud, f"unannounced warnings: {loud}"
