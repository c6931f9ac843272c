"""A test session that is ended, or killed, in the middle of a test that has a cluster with a run: nothing is left."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import ending
import pytest
from conftest import DEADLINE, alive, processes, wait_for

pytestmark = pytest.mark.engines
HOLDS = """
import pathlib

def test_holds(notebook):
    notebook.ok("%tfcluster reserve --workers 1 --no-zygote --framework none --idle 10m")
    notebook.ok("%%tfcluster start\\nimport time\\nopen('runs', 'w').close()\\ntime.sleep(600)")
    notebook.run("import time\\nwhile True:\\n    time.sleep(0.1)")
"""


CASES = [
    pytest.param(0, "session", signal.SIGTERM, id="session"),
    pytest.param(2, "session", signal.SIGTERM, id="session of workers"),
    pytest.param(2, "worker", signal.SIGTERM, id="worker"),
    pytest.param(0, "session", signal.SIGKILL, id="killed session"),
]


@pytest.mark.parametrize(("workers", "victim", "number"), CASES)
def test_nothing_is_left(
    tmp_path: pathlib.Path, binary: pathlib.Path, runtime: pathlib.Path, workers: int, victim: str, number: int
) -> None:
    """Kernel, driver, agent and task end, and the folder of their sockets is removed."""
    (tmp_path / "test_holds.py").write_text(HOLDS)
    inner = tmp_path / "inner"
    words = ["-p", "conftest", "-p", "no:cacheprovider", "--basetemp", str(inner), "-n", str(workers)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(pathlib.Path(__file__).parent), "TMPDIR": str(runtime), "TFCLUSTER_TEST": str(tmp_path)}
    before = set(runtime.iterdir())
    with (tmp_path / "output").open("w") as output:
        session = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words, str(tmp_path)],
            env=env | {"TFCLUSTER_TEST_PROGRAM": str(binary)},
            stdout=output,
            stderr=output,
        )
    marker = f"TFCLUSTER_TEST={tmp_path}"
    try:
        runs = "popen-gw*/*/runs" if workers else "*/runs"
        wait_for("the run", lambda: session.poll() is not None or any(inner.glob(runs)))
        assert session.poll() is None, (tmp_path / "output").read_text()
        found = processes(marker)
        assert [c for c in found.values() if c.endswith(" agent")] and len(found) >= 5, found
        pid = session.pid if victim == "session" else worker(found)
        os.kill(pid, number)
        wait_for("the end of the process", lambda: not alive(pid))
        session.wait(DEADLINE)
        wait_for("the end of what the session started", lambda: not processes(marker))
        wait_for("the end of its folder", lambda: set(runtime.iterdir()) == before)
    finally:
        session.kill()
        session.wait()
        ending.end(marker, 0)


def worker(found: dict[int, str]) -> int:
    """Return the worker of pytest-xdist that runs the test: the kernel's parent."""
    kernel = next(pid for pid, command in found.items() if " kernel " in command)
    return int(pathlib.Path(f"/proc/{kernel}/stat").read_text().rpartition(")")[2].split()[1])
