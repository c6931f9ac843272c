"""Collective calls between the tasks of a run, from a notebook's program."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal

import pytest
from conftest import Notebook, processes, wait_for

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

ENDLESS = """
def main_fun(args, ctx):
    import os, pathlib
    import numpy as np
    import tfcluster.collective as collective

    x = np.ones(1 << 20, dtype="float32")
    collective.barrier()
    pathlib.Path(os.environ["TFCLUSTER_TEST"], f"rank{ctx.worker_num}").write_text(str(os.getpid()))
    while True:
        assert (collective.all_reduce(x) == ctx.num_workers).all()
"""


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


def test_calls(notebook: Notebook) -> None:
    """Every call on three tasks: values, shapes, types, vectors larger than the memory, and what is refused."""
    notebook.ok("%tfcluster reserve --workers 3 --no-zygote --framework none")
    notebook.ok(CALLS)
    cell = notebook.ok("run = %tfcluster start --wait main_fun\nset(map(str, run.results.values()))", timeout=120)
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


def test_killed(notebook: Notebook) -> None:
    """A task that is killed in the middle ends the run with its name, and leaves no memory behind."""
    home = pathlib.Path(notebook.env["TFCLUSTER_TEST"])
    notebook.ok("%tfcluster reserve --workers 2 --no-zygote --framework none")
    notebook.ok(ENDLESS)
    for round in range(2):
        for rank in range(2):
            (home / f"rank{rank}").unlink(missing_ok=True)
        notebook.ok("%tfcluster start main_fun")
        wait_for("both tasks", lambda: all((home / f"rank{n}").exists() for n in range(2)))
        os.kill(int((home / f"rank{round}").read_text()), signal.SIGKILL)
        cell = notebook.fails("%tfcluster wait")
        assert f"worker:{round}" in cell.error.splitlines()[0] and "killed by signal 9" in cell.error, cell.error
        agents = [p for p, command in processes(f"TFCLUSTER_TEST={home}").items() if command.endswith(" agent")]
        assert len(agents) == 2
        wait_for("the end of the groups' memory", lambda agents=agents: not any(map(shared, agents)))


def shared(agent: int) -> list[str]:
    """What an agent has of groups: mappings and descriptors."""
    proc = pathlib.Path(f"/proc/{agent}")
    mapped = [line for line in (proc / "maps").read_text().splitlines() if "tfcluster-group" in line]
    opened = []
    for fd in (proc / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            if "tfcluster-group" in os.readlink(fd):
                opened.append(str(fd))
    return mapped + opened
