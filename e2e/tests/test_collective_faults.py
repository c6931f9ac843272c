"""Collective calls where something fails: processes killed or stopped in the middle, connections that break."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Cell, Notebook, alive, processes, wait_for, written

pytestmark = pytest.mark.engines

WORKERS = 4
KINDS = ["stop an agent", "cut a connection", "kill an agent", "stop a task", "kill a task"]
CAUSES = {
    "kill a task": "{} on .* was killed by signal 9",
    "kill an agent": "{} on .* is silent|executor lost.*{}|{}.*executor",
    "stop a task": r"{} on .* is stopped \(a SIGSTOP",
    "stop an agent": r"the executor of {} does not answer|{} on .*: silent for \d+ s: its (agent|host) is ",
    "cut a connection": "lost the connection to {}|{} lost the connection to",
}

SUMS = """
def sums(args, ctx):
    import json, os, pathlib, signal
    import numpy as np
    import tfcluster.collective as collective

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the driver ends it when it knows the cause: this is to say its own
    home, rank, size = pathlib.Path(os.environ["TFCLUSTER_TEST"]), ctx.worker_num, ctx.num_workers
    limit = float((home / "limit").read_text())
    said = {"calls": 0, "wrong": 0, "error": ""}
    collective.barrier()
    (home / f"pid-{rank}").write_text(str(os.getpid()))
    try:
        while not (home / "enough").exists() or said["calls"] < 2000:
            n = said["calls"]
            x = np.full((1, 1000, 1 << 18, 5 << 19)[n * 7 % 13 % 4], n + rank, dtype="float64")
            total = collective.all_reduce(x, timeout=limit)
            said["wrong"] += int((total != size * n + size * (size - 1) // 2).any())
            said["calls"] += 1
    except RuntimeError as e:
        said["error"] = str(e)
        raise
    finally:
        (home / f"new-{rank}").write_text(json.dumps(said))
        (home / f"new-{rank}").rename(home / f"end-{rank}")
"""

ONCE = """
def once(args, ctx):
    import numpy as np
    import tfcluster.collective as collective

    return float(collective.all_reduce(np.full(1 << 20, 1.0 + ctx.worker_num)).max())
"""


LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438  # pidfd_getfd(2)


class Bed:
    """A cluster whose tasks add up numbers, and what its processes have."""

    def __init__(self, notebook: Notebook, env: dict[str, str]) -> None:
        self.notebook = notebook
        self.home = pathlib.Path(env["TFCLUSTER_TEST"])
        self.sockets = pathlib.Path(env["XDG_RUNTIME_DIR"])
        self.killed: set[pathlib.Path] = set()  # sockets of agents that were killed

    def agents(self) -> list[int]:
        """The agents' processes."""
        found = processes(f"TFCLUSTER_TEST={self.home}")
        return sorted(pid for pid, command in found.items() if command.endswith(" agent"))

    def agent(self, rank: int) -> int:
        """The agent of a task: the task's program is connected to it."""
        return next(a for a in self.agents() if any(peer == self.pid(rank) for _, peer in unix_sockets(a)))

    def start(self, limit: float) -> None:
        """Starts the program, and waits until every task has made a call."""
        for path in [*self.home.glob("pid-*"), *self.home.glob("end-*")]:
            path.unlink()
        (self.home / "limit").write_text(str(limit))
        self.notebook.ok("%tfcluster start sums")
        wait_for("the tasks", lambda: len(list(self.home.glob("pid-*"))) == WORKERS)

    def pid(self, rank: int) -> int:
        """The process of a task."""
        return int(written(self.home / f"pid-{rank}"))

    def ends(self) -> dict[int, dict[str, Any]]:
        """What the programs said at their ends."""
        return {int(path.name[4:]): json.loads(path.read_text()) for path in self.home.glob("end-*")}


def copied(pid: int) -> Iterator[socket.socket]:
    """Copies of another process's sockets: what is done to one is done to its socket."""
    process = os.pidfd_open(pid)
    try:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(fd).startswith("socket:"):
                    copy = LIBC.syscall(PIDFD_GETFD, process, int(fd.name), 0)
                    if copy >= 0:
                        with socket.socket(fileno=copy) as s:
                            yield s
    finally:
        os.close(process)


def unix_sockets(pid: int) -> Iterator[tuple[socket.socket, int]]:
    """A process's connections by the sockets of groups, with the process at the other end."""
    for s in copied(pid):
        if s.family != socket.AF_UNIX or s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
        names = [s.getsockname()]
        with contextlib.suppress(OSError):
            names.append(s.getpeername())
        if any("group-" in str(name) for name in names):
            yield s, struct.unpack("iii", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def cut(one: int, other: int) -> bool:
    """Ends a connection between two agents; whether there is one."""
    for s, peer in unix_sockets(one):
        if peer == other:
            s.shutdown(socket.SHUT_RDWR)
            return True
    ends = {(s.getpeername(), s.getsockname()) for s in streams(other)}
    for s in streams(one):
        if (s.getsockname(), s.getpeername()) in ends:
            s.shutdown(socket.SHUT_RDWR)
            return True
    return False


def streams(pid: int) -> Iterator[socket.socket]:
    """A process's TCP connections."""
    for s in copied(pid):
        if s.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                s.getpeername()
                yield s


def opened(pid: int) -> list[str]:
    """What a process has open, without numbers that differ."""
    found = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(re.sub(r"[0-9]+", "", os.readlink(fd)))
    return sorted(found)


def harmed(bed: Bed, kind: str, rng: random.Random) -> set[int]:
    """Does something to the run; returns the ranks that it is about."""
    ranks = list(range(WORKERS))
    rng.shuffle(ranks)
    rank, verb = ranks[0], kind.split()[0]
    if verb == "cut":
        agents = {r: bed.agent(r) for r in ranks}
        for a in ranks:
            for b in ranks:
                if a != b and cut(agents[a], agents[b]):
                    return {a, b}
        raise AssertionError("no two agents are connected")
    pid = bed.agent(rank) if kind.endswith("agent") else bed.pid(rank)
    if kind.endswith("agent"):  # one that is stopped is killed when it is replaced
        bed.killed |= {path for path in bed.sockets.rglob("group-*.sock")}
    os.kill(pid, signal.SIGKILL if verb == "kill" else signal.SIGSTOP)
    return {rank}


def check(bed: Bed, kind: str, lost: set[int], cell: Cell) -> tuple[int, int]:
    """Check the run's cause and what the other tasks said.

    Return how many the driver ended before they could say it, and how many others there were.
    """
    names = [f"worker:{rank}" for rank in lost]
    pattern = "|".join(CAUSES[kind].replace("{}", name) for name in names)
    assert cell.status == "error" and re.search(pattern, cell.error), f"{kind} of {names}: {cell.all}"
    ends = bed.ends()
    others = set(range(WORKERS)) - (lost if "cut" not in kind else set())
    heard = others & set(ends)  # the driver ends a task 0.5 s later: on a loaded machine it may not have been told yet
    for rank in heard:
        said = ends[rank]
        assert said["wrong"] == 0 and any(name in said["error"] for name in names), f"{kind} of {names}: {rank}: {said}"
        wrong = [r for r in others - lost if f"worker:{r}" in said["error"]]
        assert not wrong, f"{kind} of {names}: {rank}: {said}"
    return len(others - heard), len(others)


@pytest.mark.parametrize("hosts", [1, 3])
def test_faults(prefix: pathlib.Path, env: dict[str, str], tmp_path: pathlib.Path, hosts: int) -> None:
    """kill -9 and SIGSTOP of tasks and agents, and cut connections, at random moments.

    All others end with the name of who was lost, no sum is wrong, and the next run has nothing of the last one.
    """
    seed = int(os.environ.get("TFCLUSTER_SEED", "14"))
    rng = random.Random(seed + hosts)
    if hosts > 1:
        env["TFCLUSTER_TEST_HOSTS"] = str(hosts)
    notebook = Notebook(prefix, env, tmp_path)
    try:
        notebook.ok(f"%tfcluster reserve --backend local --workers {WORKERS} --no-zygote --framework none --idle 120s")
        notebook.ok(SUMS + ONCE)
        bed = Bed(notebook, env)
        # A task that is computing when another one is killed has 0.5 s until the driver ends it.
        rounds = max(len(KINDS) - 1, int(os.environ.get("TFCLUSTER_ROUNDS", "0")) // 2)
        first = 0 if hosts > 1 else 1  # in few rounds only one agent is stopped: the driver waits 10 s for its answer
        kinds = [KINDS[(first + n) % len(KINDS)] for n in range(rounds)]
        rng.shuffle(kinds)
        early = told = 0
        for kind in kinds:
            works(bed)
            before = {agent: opened(agent) for agent in bed.agents()}
            assert len(before) == WORKERS
            bed.start(limit=2 if "stop" in kind else 60)
            tasks = [bed.pid(rank) for rank in range(WORKERS)]
            time.sleep(rng.random())
            began = time.monotonic()
            lost = harmed(bed, kind, rng)
            cell = notebook.run("%tfcluster wait")
            print(f"{kind} of {lost}: {time.monotonic() - began:.1f} s: {cell.error.splitlines()[0]}")
            wait_for("the end of the tasks", lambda tasks=tasks: not any(map(alive, tasks)))
            silent, others = check(bed, kind, lost, cell)
            early, told = early + silent, told + others
            wait_for("the agents", lambda: len(bed.agents()) == WORKERS)
            left(bed, before)
        works(bed)
        assert 2 * early <= told, f"the driver ended {early} of {told} tasks before they made a call"
        print(f"{rounds} rounds on {hosts} hosts, {early} of {told} tasks were ended before they could say why")
        notebook.ok("%tfcluster shutdown")
    finally:
        notebook.close()


def works(bed: Bed) -> None:
    """The next run adds up right."""
    cell = bed.notebook.ok("run = %tfcluster start --wait once\nset(run.results.values())")
    assert cell.result == f"{{{float(sum(range(1, WORKERS + 1)))}}}", cell.all


def group_memory(agent: int) -> list[str]:
    """Return what an agent has of groups: mappings and descriptors."""
    proc = pathlib.Path(f"/proc/{agent}")
    mapped = [line for line in (proc / "maps").read_text().splitlines() if "tfcluster-group" in line]
    opened = []
    for fd in (proc / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed in the meantime
            if "tfcluster-group" in os.readlink(fd):
                opened.append(str(fd))
    return mapped + opened


def left(bed: Bed, before: dict[int, list[str]]) -> None:
    """Nothing of a group is left: no memory, no descriptor of an agent that lives on, no socket."""
    agents = bed.agents()
    wait_for("the end of the groups' memory", lambda: not any(map(group_memory, agents)))
    wait_for("the end of the sockets", lambda: set(bed.sockets.rglob("group-*.sock")) <= bed.killed)
    for agent in set(agents) & set(before):
        try:
            wait_for("its descriptors", lambda agent=agent: len(opened(agent)) <= len(before[agent]))
        except AssertionError:
            raise AssertionError(f"an agent has {opened(agent)}, and had {before[agent]}") from None
