"""Where things live, by the XDG base directory specification."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import PlatformDirs

_APP = "ollie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The places of one user's daemon."""

    home: Path
    mountpoint: Path
    """``$OLLIE``, else ``~/ollie``."""
    config: Path
    data: Path
    state: Path

    @property
    def backends_conf(self) -> Path:
        """The configured model endpoints."""
        return self.config / "backends.conf"

    @property
    def lock(self) -> Path:
        """Held by the running daemon, with its pid and mount point inside."""
        return self.state / "daemon.lock"


def paths_of(environ: Mapping[str, str]) -> Paths:
    """Return the places that *environ* and the user's home say; touches no disk."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    dirs = PlatformDirs(_APP, appauthor=False)
    mountpoint = Path(environ.get("OLLIE") or home / "ollie")
    return Paths(
        home=home,
        mountpoint=Path(os.path.abspath(mountpoint)),
        config=dirs.user_config_path,
        data=dirs.user_data_path,
        state=dirs.user_state_path,
    )
