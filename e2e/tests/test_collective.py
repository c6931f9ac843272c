"""Collective calls between the tasks of a run, from a notebook's program."""

from __future__ import annotations

import pytest
from conftest import Notebook

CALLS = """
def main_fun(args, ctx):
    import numpy as np
    import tfcluster.collective as collective

    rank, size = collective.rank(), collective.size()
    assert rank == ctx.worker_num and size == ctx.num_workers
    large = np.random.default_rng(rank).normal(size=(3, 3_000_001)).astype("float32")  # 36 MB, in pieces
    total = collective.all_reduce(large)
    parts = [np.random.default_rng(n).normal(size=(3, 3_000_001)).astype("float32") for n in range(size)]
    assert np.allclose(total, sum(parts), atol=1e-5)
    same = collective.all_gather(np.frombuffer(total.tobytes(), dtype="int32").sum(dtype="int64"))
    assert len(set(same.tolist())) == 1, same  # the same bits everywhere
    half = collective.all_reduce(np.full(5, 1.5, dtype="float16"))
    most = collective.all_reduce(np.array([rank, -rank], dtype="int32"), op="max")
    gathered = collective.all_gather(np.full((2, 1), rank))
    roots = collective.broadcast(np.full((2, 2), float(rank)), root=size - 1)
    empty = collective.all_reduce(np.zeros((0, 3)))
    scalar = collective.all_reduce(np.float64(rank + 1))
    collective.barrier()
    try:
        collective.all_reduce(np.array(["a"]))
    except RuntimeError as e:
        refused = str(e)
    return [half.tolist(), most.tolist(), gathered.ravel().tolist(), roots.ravel().tolist(), empty.shape, float(scalar),
            "cannot be reduced" in refused]
"""

DIFFERENT = """
def main_fun(args, ctx):
    import numpy as np
    import tfcluster.collective as collective

    if ctx.worker_num:
        collective.all_reduce(np.zeros(4, dtype="float32"))
    else:
        collective.all_gather(np.zeros(4, dtype="float32"))
"""

LATE = """
def main_fun(args, ctx):
    import time
    import tfcluster.collective as collective

    collective.barrier()
    if ctx.worker_num:
        time.sleep(60)
    collective.barrier(timeout=1)
"""

SHAPES = """
def main_fun(args, ctx):
    import numpy as np
    import tfcluster.collective as collective

    collective.all_reduce(np.ones((2, 3) if ctx.worker_num else (3, 2)))
"""


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


def test_calls(notebook: Notebook) -> None:
    """Every call on three tasks: values, shapes, types, vectors larger than the memory, and what is refused."""
    notebook.ok("%tfcluster reserve --workers 3 --no-zygote --framework none")
    notebook.ok(CALLS)
    cell = notebook.ok("run = %tfcluster start --wait main_fun\nset(map(str, run.results.values()))")
    want = "[[4.5, 4.5, 4.5, 4.5, 4.5], [2, 0], [0, 0, 1, 1, 2, 2], [2.0, 2.0, 2.0, 2.0], (0, 3), 6.0, True]"
    assert cell.result == repr({want}), cell.all


def test_errors(notebook: Notebook) -> None:
    """Different calls, and a task that does not come, end the run with what each did."""
    notebook.ok("%tfcluster reserve --workers 2 --no-zygote --framework none")
    notebook.ok(DIFFERENT)
    cell = notebook.fails("%tfcluster start --wait main_fun")
    assert "call 1 of worker:" in cell.error and "all tasks must make the same calls in the same order" in cell.error
    assert "all_gather of 16 bytes" in cell.error and "all_reduce(sum) of 4 float32" in cell.error, cell.error
    notebook.ok(SHAPES)
    cell = notebook.fails("%tfcluster start --wait main_fun")
    assert "but their arrays have different types or shapes" in cell.error, cell.error
    notebook.ok(LATE)
    cell = notebook.fails("%tfcluster start --wait main_fun")
    assert "barrier: worker:1 did not arrive: the timeout= of 1s has passed" in cell.error, cell.error
