"""A Python that lacks TensorFlow: it can be reserved, and says so; what needs TensorFlow says so too."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import cloudpickle
import pytest
from conftest import Notebook

pytestmark = pytest.mark.engines

PROGRAMS = """
def without(args, ctx):
    return ctx.num_workers

def main_fun(args, ctx):
    import tensorflow as tf
    return tf.__version__
"""


@pytest.fixture
def bare(tmp_path: pathlib.Path) -> pathlib.Path:
    """An interpreter that has cloudpickle and nothing else."""
    home = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / "cloudpickle").symlink_to(pathlib.Path(cloudpickle.__file__).parent)
    return home / "bin" / "python"


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


@pytest.mark.parametrize("zygote", ["", " --no-zygote"])
def test_without_tensorflow(notebook: Notebook, bare: pathlib.Path, zygote: str) -> None:
    """reserve warns, another program runs, and the one that imports it fails in one clear line."""
    cell = notebook.ok(f"%tfcluster reserve --workers 2 --python {bare} --idle 60s{zygote}")
    warnings = [line for line in cell.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and f"TensorFlow is not installed: {bare} -m pip" in warnings[0], cell.all
    notebook.ok(PROGRAMS)
    notebook.ok("%tfcluster start --wait without")
    assert notebook.ok("_.result").result == "2"
    cell = notebook.fails("%tfcluster start --wait main_fun")
    first = cell.error.splitlines()[0]
    assert cell.ename == "RunFailed" and "No module named 'tensorflow'" in first, cell.all
    assert "    import tensorflow as tf" in cell.all, cell.all
    assert notebook.ok("1+1").result == "2"
    notebook.ok("%tfcluster start --wait without")
