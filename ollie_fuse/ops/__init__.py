"""The FUSE door: nodes → pyfuse3. It alone knows pyfuse3, and nothing of what nodes mean."""

from ollie_fuse.ops.mount import Mount, MountFailed, open_mount
from ollie_fuse.ops.own_mount import OwnMount

__all__ = ["Mount", "MountFailed", "OwnMount", "open_mount"]
