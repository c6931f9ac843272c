"""The modules of the package import one way: no module is, by what it imports, below itself."""

from __future__ import annotations

import ast
import graphlib
import os
import pathlib
import subprocess
import sys

PACKAGE = pathlib.Path(__file__).parents[1] / "tfcluster"


def imported(source: str, modules: set[str]) -> set[str]:
    """The modules of the package that a source imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "tfcluster":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tfcluster."):
            below = (node.module or "").removeprefix("tfcluster.")
            found |= {below, *(f"{below}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("tfcluster.") for alias in node.names}
    return found & modules


def test_imports_have_no_cycle() -> None:
    files = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    modules = {name for name in files if name.rpartition(".")[2] != "__init__"}
    assert "tfos.dfutil" in modules
    graph = {name: imported(files[name].read_text(), modules) for name in modules}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_a_cycle_is_found() -> None:
    graph = {"a": imported("from tfcluster import b", {"a", "b"}), "b": imported("import tfcluster.a", {"a", "b"})}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError:
        return
    raise AssertionError("a cycle was not found")


QUIET = """
import sys
seen = []
def hook(event, args):
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.system", "urllib.")):
        seen.append(event)
sys.addaudithook(hook)
import tfcluster, tfcluster.serverproxy
print(seen)
"""


def test_an_import_opens_nothing() -> None:
    """Neither the package nor what jupyter-server-proxy imports of it connects to anything, or starts a process."""
    env = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", QUIET], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stdout + done.stderr
