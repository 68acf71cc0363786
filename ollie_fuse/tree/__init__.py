"""The agent filesystem: a table of its files, one row each, where engine and files meet.

A row names a file, says in a sentence what it does, and makes its node for the thing that it belongs to. Help is
generated from the rows.
"""

from ollie_fuse.tree.root_files import build_tree, render_tree
from ollie_fuse.tree.row import Root

__all__ = ["Root", "build_tree", "render_tree"]
