"""``python -m ollie_fuse`` is ``ollie-fuse``."""

from ollie_fuse.cli import main

raise SystemExit(main())
