"""Where things live follows the environment, by the XDG specification."""

from pathlib import Path

import pytest

from ollie_fuse.paths import read_paths


def test_defaults_are_below_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a home alone everything is where XDG says."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "STATE"):
        monkeypatch.delenv(f"XDG_{kind}_HOME")
    paths = read_paths()
    assert (paths.home, paths.mountpoint) == (tmp_path, tmp_path / "ollie")
    assert paths.backends_conf == tmp_path / ".config/ollie/backends.conf"
    assert paths.data == tmp_path / ".local/share/ollie"
    assert paths.lock == tmp_path / ".local/state/ollie/daemon.lock"


def test_xdg_variables_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables say where configuration, data and state are."""
    for kind in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", f"/{kind}")
    paths = read_paths()
    assert (paths.config, paths.data, paths.state) == (Path("/CONFIG/ollie"), Path("/DATA/ollie"), Path("/STATE/ollie"))


@pytest.mark.parametrize(("given", "expected"), [("/m", "/m"), ("/m/../n/", "/n"), ("rel", f"{Path.cwd()}/rel")])
def test_mountpoint(monkeypatch: pytest.MonkeyPatch, given: str, expected: str) -> None:
    """`$OLLIE` is made absolute."""
    monkeypatch.setenv("OLLIE", given)
    assert read_paths().mountpoint == Path(expected)


def test_mountpoint_is_told_as_the_kernel_lists_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Links on the way to the mount point are followed, the mount point itself is not looked at."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("OLLIE", str(tmp_path / "link" / "ollie"))
    assert read_paths().mountpoint == tmp_path / "real" / "ollie"


def test_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saying where things live makes nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    read_paths()
    assert list(tmp_path.iterdir()) == []
