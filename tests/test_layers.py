"""Imports inside ollie_fuse point one way, and each foreign library has one home."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ollie_fuse"

# An entry may import only entries named in its set, all of which stand above it.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "paths": set(),
    "config": {"errors", "paths"},
    "child": {"errors"},
    "stamp": set(),
    "mountinfo": set(),
    "nodes": {"errors", "stamp"},
    "ninep": {"errors", "nodes"},
    "ops": {"errors", "nodes", "stamp", "mountinfo"},
    "ninep_bridge": {"errors", "nodes", "ninep"},
    "providers": {"errors", "config", "child"},
    "agent": {"errors", "stamp", "config", "child", "providers"},
    "toolsrv": {"errors", "paths", "child", "nodes", "ninep", "ops", "ninep_bridge"},
    "remote": {"errors", "config", "child"},
    "toolclient": {"errors", "ninep", "agent", "remote"},
    "tree": {"__init__", "errors", "stamp", "paths", "config", "nodes", "agent"},
    "preflight": {"errors", "paths", "child", "mountinfo"},
    "daemon": {
        "errors", "paths", "config", "nodes", "ops", "ninep_bridge",
        "providers", "agent", "remote", "toolclient", "tree", "preflight", "stamp",
    },
    "cli": {"__init__", "errors", "paths", "config", "child", "providers", "daemon", "toolsrv", "preflight"},
    "__main__": {"cli"},
}  # fmt: skip

ONLY_IN: dict[str, set[str]] = {
    "pyfuse3": {"ops/operations.py", "ops/mount.py"},
    "httpx": {"providers/transport.py"},
    "paramiko": {"remote.py"},
    "argparse": {"cli.py", "toolsrv/main.py"},
    "subprocess": {"child.py"},
    "asyncio": set(),
}


def entry(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Full dotted names that *path* imports, relative imports resolved."""
    here = ("ollie_fuse", *path.relative_to(PACKAGE).parent.parts)
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [base, node.module]))
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    """A module imports its own entry and those its row allows."""
    ours = {n.split(".")[1] for n in imports(path) if n.startswith("ollie_fuse.")}
    ours = {"__init__" if name.startswith("__version") else name for name in ours}
    assert ours - {entry(path)} <= MAY_IMPORT[entry(path)]


@pytest.mark.parametrize("library", ONLY_IN)
def test_foreign_library_has_one_home(library: str) -> None:
    """A foreign library is imported only by the file that wraps it."""
    users = {str(p.relative_to(PACKAGE)) for p in FILES if library in {n.split(".")[0] for n in imports(p)}}
    assert users <= ONLY_IN[library]


def test_table_is_a_ladder() -> None:
    """Every allowed import stands higher in the table, so no cycle can be written."""
    rank = list(MAY_IMPORT).index
    assert all(rank(low) < rank(high) for high, lows in MAY_IMPORT.items() for low in lows)
