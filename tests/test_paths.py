"""Where things live follows the environment that is given, by the XDG specification."""

import os
from pathlib import Path

import pytest

from ollie_fuse.paths import paths_of


def test_defaults_are_below_home() -> None:
    """With a home alone everything is where XDG says."""
    paths = paths_of({"HOME": "/h"})
    assert (paths.home, paths.mountpoint) == (Path("/h"), Path("/h/ollie"))
    assert paths.backends_conf == Path("/h/.config/ollie/backends.conf")
    assert paths.data == Path("/h/.local/share/ollie")
    assert paths.lock == Path("/h/.local/state/ollie/daemon.lock")


def test_xdg_variables_are_followed() -> None:
    """The variables of the given environment, not of some other, say where configuration, data and state are."""
    environ = {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d", "XDG_STATE_HOME": "/s"}
    paths = paths_of(environ)
    assert (paths.config, paths.data, paths.state) == (Path("/c/ollie"), Path("/d/ollie"), Path("/s/ollie"))


def test_relative_or_empty_xdg_variables_are_ignored() -> None:
    """The specification: paths in these variables are absolute, all others are to be ignored."""
    paths = paths_of({"HOME": "/h", "XDG_CONFIG_HOME": "relative", "XDG_STATE_HOME": ""})
    assert (paths.config, paths.state) == (Path("/h/.config/ollie"), Path("/h/.local/state/ollie"))


@pytest.mark.parametrize(
    ("given", "expected"), [("/m", "/m"), ("", "/h/ollie"), ("/m/../n/", "/n"), ("rel", f"{os.getcwd()}/rel")]
)
def test_mountpoint(given: str, expected: str) -> None:
    """`$OLLIE` is made absolute, and an empty one is none."""
    assert paths_of({"HOME": "/h", "OLLIE": given}).mountpoint == Path(expected)


def test_touches_no_disk(tmp_path: Path) -> None:
    """Saying where things live makes nothing."""
    paths_of({"HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
