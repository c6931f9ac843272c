"""A cell's source goes to the tasks with its code: for tracebacks, and for what TensorFlow compiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Notebook

pytestmark = pytest.mark.engines

CELL = """
def scaled(x):
    if x > 0:  # AutoGraph makes this a graph's condition
        return 2 * x
    return -x

def main_fun(args, ctx):
    import tensorflow as tf

    @tf.function
    def step(x):
        total = 0.0
        for i in tf.range(3):
            total += scaled(x)
        return total

    if args:
        raise RuntimeError("this line is the cell's")  # as it stands there
    return float(step(tf.constant(2.0)))
"""


@pytest.fixture(scope="module")
def notebook(kernel: Notebook) -> Iterator[Notebook]:
    """A notebook with a worker, for all tests."""
    kernel.enter(kernel.cwd)
    kernel.ok("%tfcluster reserve --workers 1 --idle 60s")
    yield kernel
    kernel.leave()


def test_source_of_a_function(notebook: Notebook) -> None:
    """tf.function finds what it compiles, and an exception in a task shows the cell's lines."""
    notebook.ok(CELL)
    cell = notebook.ok("%tfcluster start --wait main_fun")
    assert "AutoGraph" not in cell.all, cell.all
    assert notebook.ok("_.result").result == "12.0"
    cell = notebook.fails("%tfcluster start --wait main_fun fail")
    assert 'raise RuntimeError("this line is the cell\'s")  # as it stands there' in cell.all, cell.all


def test_source_of_a_cell(notebook: Notebook) -> None:
    """The same where the cell itself is the program."""
    cell = notebook.ok(f"%%tfcluster start --wait\n{CELL}\nprint('result', main_fun([], None), flush=True)")
    assert "AutoGraph" not in cell.all, cell.all
    assert "result 12.0" in cell.all
    cell = notebook.fails(f"%%tfcluster start --wait\n{CELL}\nmain_fun(['fail'], None)")
    assert 'raise RuntimeError("this line is the cell\'s")  # as it stands there' in cell.all, cell.all
