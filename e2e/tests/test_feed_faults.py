"""Feeds where something fails: processes killed in the middle, executors that the notebook cannot reach."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
from collections.abc import Iterator

import pytest
from conftest import Cell, Notebook, alive, processes, wait_for, written
from test_feed import COUNT, TOTAL

pytestmark = pytest.mark.engines

RESERVE = "%tfcluster reserve --backend local --workers 2 --no-zygote --framework none --idle 120s"
SLOW = """
def slow(args, ctx):
    import os, pathlib, time
    pathlib.Path(os.environ["TFCLUSTER_TEST"], f"task-{ctx.task_index}").write_text(str(os.getpid()))
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(1000)
        time.sleep(0.005)
"""
NOTEBOOK = f"import numpy as np\nrecords = np.arange(100_003)\nlong = np.zeros((200_000, 100))\n{COUNT}{TOTAL}{SLOW}"


def memory(marker: str) -> dict[int, int]:
    """How many descriptors of a feed's memory each process has."""
    found: dict[int, int] = {}
    for pid in processes(marker):
        with contextlib.suppress(OSError):
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if "memfd:tfcluster-feed" in os.readlink(fd):
                        found[pid] = found.get(pid, 0) + 1
    return found


def sockets(env: dict[str, str]) -> list[pathlib.Path]:
    """The sockets of feeds."""
    return [
        path for top in ("XDG_RUNTIME_DIR", "TFCLUSTER_HOME") for path in pathlib.Path(env[top]).rglob("feed-*.sock")
    ]


def victim(kind: str, env: dict[str, str], rng: random.Random) -> int:
    """A process of the feed that is on."""
    if kind == "task":
        return int(written(pathlib.Path(env["TFCLUSTER_TEST"], f"task-{rng.randrange(2)}")))
    found = processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}")
    ends = {"agent": " agent", "driver": " driver"}
    pids = [p for p, c in found.items() if (c.endswith(ends[kind]) if kind in ends else "ipykernel" in c)]
    return rng.choice(sorted(pids))


CAUSES = {
    "task": ("SIGKILL",),
    "agent": ("executor lost",),
    "driver": ("the driver",),
    "producer": ("Python",),
}


def works(notebook: Notebook, env: dict[str, str], killed: set[pathlib.Path]) -> None:
    """The next train delivers each record once, and nothing of a feed is left but an agent's socket that was killed.

    Such a socket goes with its cluster, or a minute later with the next feed.
    """
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train records\ntotal(run)")
    assert cell.result == "(100003, {1}, 100003)", cell.all
    marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
    wait_for("the end of the feed's memory", lambda: not memory(marker))
    wait_for("the end of the feed's sockets", lambda: set(sockets(env)) <= killed)


def killed(notebook: Notebook, env: dict[str, str], kind: str, rng: random.Random, dead: set[pathlib.Path]) -> Cell:
    """Kills a process of a feed in the middle; returns what its cell shows."""
    for path in pathlib.Path(env["TFCLUSTER_TEST"]).glob("task-*"):
        path.unlink()
    notebook.ok("%tfcluster start slow")
    feeds = notebook.send("%tfcluster train long --epochs 50")
    wait_for("the tasks", lambda: len(list(pathlib.Path(env["TFCLUSTER_TEST"]).glob("task-*"))) == 2)
    marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
    wait_for("the feed's memory", lambda: len(memory(marker)) >= 2)
    with contextlib.suppress(AssertionError):
        wait_for("a random time", lambda: False, rng.random())
    pid = victim(kind, env, rng)
    if kind == "agent":
        dead.update(sockets(env))
    os.kill(pid, signal.SIGKILL)
    wait_for("the end of the process", lambda: not alive(pid))
    return notebook.finish(feeds)


def test_killed(notebook: Notebook, env: dict[str, str]) -> None:
    """kill -9 of a task, an agent, the driver or Python in the middle: a clear cause, and the next train works."""
    rng = random.Random(14)
    notebook.ok(RESERVE)
    notebook.ok(NOTEBOOK)
    dead: set[pathlib.Path] = set()
    kinds = list(CAUSES) * (int(os.environ.get("TFCLUSTER_ROUNDS", "4")) // len(CAUSES))
    rng.shuffle(kinds)
    for kind in kinds:
        cell = killed(notebook, env, kind, rng, dead)
        assert cell.status == "error" and any(cause in cell.error for cause in CAUSES[kind]), f"{kind}: {cell.all}"
        if kind == "driver":
            notebook.ok("%tfcluster reset --now")
        if kind == "producer":
            # The feed may have failed before the kernel knew of Python's end, of which the next cell is then told.
            wait_for("the new Python", lambda: notebook.run(NOTEBOOK).status == "ok")
            notebook.ok("%tfcluster stop --now")
        works(notebook, env, dead)
    notebook.ok("%tfcluster shutdown")


def test_executors_elsewhere(notebook: Notebook, env: dict[str, str]) -> None:
    """Executors whose sockets the notebook cannot find are fed through the driver, each record once an epoch."""
    epochs = 3
    notebook.ok(RESERVE)
    notebook.ok(NOTEBOOK)
    notebook.ok("%tfcluster start count")
    with hidden(env):
        cell = notebook.ok(f"run = %tfcluster train records --epochs {epochs}\ntotal(run)")
    assert cell.result == f"(100003, {{{epochs}}}, {epochs * 100_003})", cell.all
    wait_for("the end of the feed's sockets", lambda: not sockets(env))


@contextlib.contextmanager
def hidden(env: dict[str, str], count: int = 2) -> Iterator[None]:
    """The tasks' sockets cannot be found, as on another host; their programs are connected."""
    marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
    wait_for("the programs at their feeds", lambda: sum(memory(marker).values()) >= count == len(sockets(env)))
    wait_for("the programs' connections", lambda: all(connected(path) for path in sockets(env)))
    paths = {path: path.with_suffix(".hidden") for path in sockets(env)}
    for path, name in paths.items():
        path.rename(name)
    yield
    for name in paths.values():
        name.unlink()


def connected(path: pathlib.Path) -> bool:
    """Whether somebody has connected to a socket."""
    lines = pathlib.Path("/proc/net/unix").read_text().splitlines()
    name = str(path)[:-1] + "~"  # that it had before it listened
    return sum(line.endswith(name) and line.split()[5] == "03" for line in lines) > 0
