"""The import of tensorflowonspark: in tasks without such a package, and the hint in a notebook."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_runner import run

from tfcluster import hints, notebook
from tfcluster.tfos import alias

SITE = Path(alias.__file__).with_name("site") / "tensorflowonspark"
USE = """
    import tensorflowonspark
    from tensorflowonspark import TFNode
    from tensorflowonspark.TFCluster import InputMode
    import tfcluster.tfos.TFNode as ours
    assert TFNode.DataFeed is ours.DataFeed
    print(InputMode.SPARK, TFNode.__name__)
"""


def test_in_a_task(tmp_path: Path) -> None:
    """A task's program imports TensorFlowOnSpark's names without a package of that name."""
    ran = run(tmp_path, USE)
    assert (ran.code, ran.stdout) == (0, "1 tensorflowonspark.TFNode\n"), ran.stderr


def test_a_real_package_comes_first(tmp_path: Path) -> None:
    """Also one that is found after all of sys.path, as by the finder of an editable install."""
    real = tmp_path / "real" / "tensorflowonspark"
    real.mkdir(parents=True)
    (real / "__init__.py").write_text("name = 'real'\n")
    code = f"""
import sys, types
from importlib.machinery import PathFinder
from tfcluster.tfos import alias

class Editable:
    def find_spec(name, path, target=None):
        return PathFinder.find_spec(name, [{str(real.parent)!r}]) if name == "tensorflowonspark" else None

sys.meta_path.append(Editable)
before = list(sys.meta_path)
alias.install()
alias.install()
assert sys.meta_path[:-1] == before
import tensorflowonspark
print(tensorflowonspark.name)
del sys.modules["tensorflowonspark"]
sys.meta_path.remove(Editable)
import tensorflowonspark
print(tensorflowonspark.__path__ == [{str(SITE)!r}])
try:
    import tensorflowonspark.pipeline
except ModuleNotFoundError as e:
    print(e.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "real\nTrue\ntensorflowonspark.pipeline\n", done.stderr


def test_public_names() -> None:
    """Each module has all public names of its module of tfcluster.tfos."""
    names = sorted(path.stem for path in SITE.glob("*.py"))
    assert names == ["TFCluster", "TFNode", "TFParallel", "TFSparkNode", "__init__", "compat", "dfutil", "util"]
    for name in set(names) - {"__init__"}:
        tree = ast.parse((SITE / f"{name}.py").read_text())
        (imported,) = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert imported.module == f"tfcluster.tfos.{name}" and imported.names[0].name == "*"


def test_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook's cell that lacks the package names the command, in one line; others get no hint."""
    env = os.environ | {"PYTHONPATH": ""}
    lacks = subprocess.run([sys.executable, "-c", "import tensorflowonspark"], env=env, capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'tensorflowonspark'" in lacks.stderr
    error = ModuleNotFoundError("No module named 'tensorflowonspark'", name="tensorflowonspark")
    notebook._hint(SimpleNamespace(error_in_exec=error))
    said = capsys.readouterr().err
    assert "tfcluster install --tensorflowonspark" in said and said.count("\n") == 1
    for other in (None, ModuleNotFoundError("No module named 'x'", name="x"), ValueError("tensorflowonspark")):
        notebook._hint(SimpleNamespace(error_in_exec=other))
        assert hints.missing_module(other) == ""
    assert capsys.readouterr().err == ""


def test_hint_in_ipython(tmp_path: Path) -> None:
    """It comes below the traceback, until the extension is unloaded."""
    code = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from tfcluster import notebook
shell = InteractiveShell.instance()
notebook.load(shell)
sys.modules["tensorflowonspark"] = None
shell.run_cell("import tensorflowonspark")
notebook.unload(shell)
shell.run_cell("import tensorflowonspark")
"""
    env = os.environ | {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tfcluster install --tensorflowonspark") == 1, done.stdout + done.stderr
