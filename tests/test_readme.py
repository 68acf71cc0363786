"""What README promises is what there is."""

from pathlib import Path

from ollie_fuse.tree import render_tree

README = Path(__file__).parents[1] / "README.md"


def test_files_are_those_of_the_table() -> None:
    """The list of files in README is the one that `help` shows."""
    listed = README.read_text(encoding="utf-8").partition("<!-- files -->\n")[2].partition("<!-- /files -->")[0]
    assert listed == f"```\n{render_tree()}```\n"
