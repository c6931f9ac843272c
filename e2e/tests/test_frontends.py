"""Every verb, from a magic, in the front ends that execute a notebook without a browser."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import nbformat
import pytest
import verb_notebook
from conftest import DEADLINE, ROOT

Executed = Callable[[pathlib.Path, dict[str, str]], pathlib.Path]


def execute(env: dict[str, str], folder: pathlib.Path, *command: str | pathlib.Path) -> None:
    """Run a front end's program to its end, in the notebook's folder."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def by_nbclient(notebook: pathlib.Path, env: dict[str, str]) -> pathlib.Path:
    """jupyter execute, which is nbclient's."""
    out = notebook.with_name("out.ipynb")
    execute(env, out.parent, "jupyter", "execute", f"--output={out}", "--timeout=300", notebook)
    return out


def by_nbconvert(notebook: pathlib.Path, env: dict[str, str]) -> pathlib.Path:
    """jupyter nbconvert --execute, and the page it makes of the result."""
    out = notebook.with_name("out.ipynb")
    execute(env, out.parent, "jupyter", "nbconvert", "--to", "notebook", "--execute", "--output", out.stem, notebook)
    execute(env, out.parent, "jupyter", "nbconvert", "--to", "html", out)
    page = out.with_suffix(".html").read_text()
    assert "run 1 · main_fun · finished" in page and "[worker:1] alone 1" in page
    return out


@pytest.fixture
def jupyter(env: dict[str, str], prefix: pathlib.Path, tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of a user of Jupyter who has the kernel installed; in the test's own folder."""
    return {**env, "JUPYTER_PATH": str(prefix / "share" / "jupyter"), "IPYTHONDIR": str(tmp_path / "ipython")}


@pytest.mark.parametrize("front_end", [by_nbclient, pytest.param(by_nbconvert, marks=pytest.mark.engines)])
def test_every_verb(front_end: Executed, jupyter: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The notebook of all verbs, by the kernel."""
    path = tmp_path / "verbs.ipynb"
    verb_notebook.write(path)
    problems = verb_notebook.problems(front_end(path, jupyter))
    assert not problems, "\n\n".join(problems)


@pytest.mark.engines
def test_papermill(jupyter: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The same by papermill, whose parameter reaches the program's arguments and a verb's option."""
    path, out = tmp_path / "verbs.ipynb", tmp_path / "out.ipynb"
    verb_notebook.write(path)
    execute(jupyter, tmp_path, sys.executable, "-m", "papermill", "--no-progress-bar", "-p", "rounds", "3", path, out)
    problems = verb_notebook.problems(out, rounds=3)
    assert not problems, "\n\n".join(problems)
    assert verb_notebook.problems(out, rounds=2), "the check does not look at the parameter"


@pytest.mark.engines
def test_plain_ipykernel(jupyter: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The same notebook behind %load_ext tfcluster, in ipykernel itself."""
    path = tmp_path / "verbs.ipynb"
    verb_notebook.write(path, "python3", load_ext=True)
    packages = [str(ROOT / "cluster" / "python"), os.environ.get("PYTHONPATH", "")]
    out = by_nbclient(path, {**jupyter, "PYTHONPATH": os.pathsep.join(filter(None, packages))})
    problems = verb_notebook.problems(out)
    assert not problems, "\n\n".join(problems)


def test_a_verb_without_a_cell(tmp_path: pathlib.Path) -> None:
    """A verb of the command table that the notebook does not use is named; so is a cell that shows something else."""
    path = tmp_path / "verbs.ipynb"
    verb_notebook.write(path)
    notebook = nbformat.read(path, as_version=4)
    table = "%tfcluster VERB\n\n  reserve      reserve executors\n  dance        no cell uses this one\n"
    for cell in notebook.cells:
        if cell.source == "%tfcluster help":
            cell.outputs = [nbformat.v4.new_output("stream", text=table)]
    nbformat.write(notebook, path)
    problems = verb_notebook.problems(path)
    assert [p for p in problems if "has no cell" in p] == ["the verb dance has no cell in verb_notebook.py"]
    assert any(p.startswith("%tfcluster shutdown\nlacks cluster verbs released in") for p in problems), problems
