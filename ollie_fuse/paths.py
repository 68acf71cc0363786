"""Where things live, by the XDG base directory specification."""

import os
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


def read_paths() -> Paths:
    """Read the places from this process's environment.

    Follows links up to the mount point's parent, since the kernel lists mounts without any, and looks at nothing below.
    """
    dirs = PlatformDirs(_APP, appauthor=False)
    home = Path.home()
    mountpoint = Path(os.environ.get("OLLIE") or home / _APP).absolute()
    return Paths(
        home=home,
        mountpoint=Path(os.path.realpath(mountpoint.parent), mountpoint.name),
        config=dirs.user_config_path,
        data=dirs.user_data_path,
        state=dirs.user_state_path,
    )
