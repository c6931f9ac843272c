"""Code of a notebook's cells in tracebacks: named as IPython names it."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
from test_runner import run

from tfcluster import shipping


def test_function_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function and the function it calls are of two cells, and both keep their numbers."""
    pytest.importorskip("cloudpickle")
    compiler = pytest.importorskip("IPython.core.compilerop").CachingCompiler()
    shell = types.SimpleNamespace(compile=compiler)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in (
        (4, "class Model:\n    def fit(self):\n        raise ExceptionGroup('two', [ValueError('x')])\n"),
        (7, "def main_fun(args, ctx):\n    model = Model()\n    (lambda: model.fit())()\n"),
    ):
        exec(compile(source, compiler.cache(source, number), "exec"), names)
    body, _ = shipping.pickle_program(names["main_fun"], "main_fun", 1 << 30, 1 << 20)
    ran = run(tmp_path, body, kind="function")
    for want in (
        "  |   Cell In[7], line 3, in main_fun\n  |     (lambda: model.fit())()\n",
        "  |   Cell In[7], line 3, in <lambda>\n",
        "  |   Cell In[4], line 3, in fit\n  |     raise ExceptionGroup(",
    ):
        assert want in ran.stderr
    assert "Cell In[4], line 3, in fit" in ran.said("exception")["traceback"]
    assert "File" not in ran.stderr


def test_body_of_a_cell(tmp_path: Path) -> None:
    """The magic is the cell's first line."""
    ran = run(tmp_path, "import os\n1 / 0\n", kind="cell", name="Cell In[9]")
    assert "  Cell In[9], line 3, in <module>\n    1 / 0\n" in ran.stderr
    assert "Cell In[9], line 2\n" in run(tmp_path, "def f(:\n", kind="cell", name="Cell In[9]").stderr
