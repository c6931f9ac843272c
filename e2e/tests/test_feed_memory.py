"""What a feed costs: ten gigabytes go through 64 MB of shared memory, and no process grows."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest
from conftest import Notebook, processes, wait_for, written

pytestmark = pytest.mark.engines

EPOCHS = 100  # of 100 MB
GROWTH = 50 << 10  # kB, of each process
PROGRAM = """
def consume(args, ctx):
    import os, pathlib
    import numpy, pyarrow, pyarrow.ipc
    feed = ctx.get_data_feed()
    pathlib.Path(os.environ["TFCLUSTER_TEST"], "task").write_text(str(os.getpid()))
    count, total = 0, 0.0
    while (batch := feed.next_numpy(100)) is not None:
        count, total = count + len(batch), total + float(batch.sum())
    return count, total
"""


def anonymous(pid: int) -> int:
    """The memory of a process that is its own, in kB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_ten_gigabytes(notebook: Notebook, env: dict[str, str]) -> None:
    """10 GB from an array of 100 MB: agent, task and producer stay as large as they are, and keep no descriptor."""
    notebook.ok("%tfcluster reserve --backend local --workers 1 --no-zygote --framework none --idle 120s")
    notebook.ok(
        "import numpy as np\nimport pyarrow, pyarrow.ipc\ndata = np.ones((12_500, 1000))\nsmall = data[:100]" + PROGRAM
    )
    home = pathlib.Path(env["TFCLUSTER_TEST"])

    def run(line: str) -> tuple[str, dict[str, int]]:
        """Trains; returns the result and how much each process grew meanwhile."""
        (home / "task").unlink(missing_ok=True)
        notebook.ok("%tfcluster start consume")
        task = int(written(home / "task"))
        found = processes(f"TFCLUSTER_TEST={home}")
        pids = {
            "agent": next(p for p, c in found.items() if c.endswith(" agent")),
            "producer": next(p for p, c in found.items() if "ipykernel" in c),
            "task": task,
        }
        before = {name: anonymous(pid) for name, pid in pids.items()}
        grown = dict.fromkeys(pids, 0)
        request = notebook.send(f"run = %tfcluster {line}\nlist(run.results.values())")

        def ended() -> bool:
            for name, pid in pids.items():
                with contextlib.suppress(OSError, StopIteration):  # a task that has ended
                    grown[name] = max(grown[name], anonymous(pid) - before[name])
            return not pathlib.Path(f"/proc/{pids['task']}").exists()

        wait_for("the end of the task", ended)
        return notebook.finish(request).result, grown

    run("train small")  # what every process needs once
    found = processes(f"TFCLUSTER_TEST={home}")
    lasting = [p for p, c in found.items() if c.endswith((" agent", " driver")) or "ipykernel" in c]
    open_before = {pid: descriptors(pid) for pid in lasting}
    result, grown = run(f"train data --epochs {EPOCHS}")
    assert result == f"[({12_500 * EPOCHS}, {12_500_000.0 * EPOCHS})]", result
    assert max(grown.values()) <= GROWTH, f"kB that processes grew: {grown}"

    def closed() -> bool:
        return all(descriptors(pid) <= n for pid, n in open_before.items())

    with contextlib.suppress(AssertionError):
        wait_for("the descriptors", closed)
    assert closed(), {found[pid]: (n, descriptors(pid)) for pid, n in open_before.items()}
    print("kB that processes grew:", grown)
