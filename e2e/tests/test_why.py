"""`why` and the automatic check, on runs that are made to stall.

make test-engines plants some stalls once; make test-long all of them, TFCLUSTER_ROUNDS times in each framework.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from conftest import DEADLINE, ROOT, Notebook, alive, processes, wait_for

HERE = pathlib.Path(__file__).parent
KINDS = ["fifo", "lock", "sigstop", "sleep", "fewer", "checkpoint", "deadlock", "gc", "export"]
QUICK = {
    "collective": KINDS,
    "fit": ["fifo", "gc", "fewer"],
    "loop": ["sleep", "sigstop"],
    "jax": ["lock", "fifo"],
    "torch": ["fifo", "sleep"],
}
CLASSES = {
    "fifo": "io|input",
    "lock": "lock",
    "sigstop": "stopped",
    "sleep": "lock",
    "fewer": "collective",
    "checkpoint": "checkpoint",
    "deadlock": "collective",
    "gc": "computing",
    "export": "checkpoint",
}
SOAK = float(os.environ.get("TFCLUSTER_SOAK_SECONDS", "60"))  # of training that must not be taken for a stall
ROUNDS = int(os.environ.get("TFCLUSTER_ROUNDS", "0"))
OPTIONS = {"collective": "--framework none", "jax": "--framework jax", "torch": "--framework pytorch"}


def blamed(kind: str) -> str:
    """Return the task that holds the others up."""
    return "worker:0" if kind == "export" else "worker:1"


class Stalls:
    """A cluster whose runs stall."""

    def __init__(self, notebook: Notebook, home: pathlib.Path) -> None:
        self.notebook = notebook
        self.home = home

    def shell(self, *words: str) -> str:
        """What a command prints, in a shell beside the notebook."""
        env = self.notebook.env
        command = [env["TFCLUSTER_BINARY"], *words]
        return subprocess.run(command, env=env, cwd=self.home, check=True, capture_output=True, text=True).stdout

    def start(self, framework: str, kind: str, seconds: float = 60) -> None:
        """Start the program, and wait until it stalls; without a stall it trains for so long."""
        for path in [*self.home.glob("stalled-*"), *self.home.glob("fifo-*")]:
            path.unlink()
        self.notebook.ok(f"%tfcluster start stalls.py {framework} {kind} {seconds}")
        if kind not in ("none", "slow"):
            wait_for(f"the stall {kind}", lambda: any(self.home.glob("stalled-*")) or not self.active())
            assert self.active(), self.notebook.ok("%tfcluster logs -n 50").all

    def active(self) -> bool:
        """Whether the run goes on."""
        return self.run()["state"] in ("starting", "running")

    def why(self) -> dict:
        """What why says."""
        return json.loads(self.shell("why", "--json"))

    def run(self) -> dict:
        """The run's status."""
        return json.loads(self.shell("status", "--json"))["run"]

    def agent(self, pid: int) -> int:
        """The agent that reads a task's stdout. The task may be forked from the zygote of another agent of the host."""
        pipe = os.readlink(f"/proc/{pid}/fd/1")
        found = processes(f"TFCLUSTER_TEST={self.notebook.env['TFCLUSTER_TEST']}")
        agents = [p for p, command in found.items() if command.endswith(" agent")]
        return next(p for p in agents if any(os.readlink(f) == pipe for f in pathlib.Path(f"/proc/{p}/fd").iterdir()))

    def reset(self) -> None:
        """End the run."""
        self.notebook.ok("%tfcluster reset")


@pytest.fixture
def stalls(
    request: pytest.FixtureRequest, env: dict[str, str], prefix: pathlib.Path, tmp_path: pathlib.Path
) -> Iterator[Stalls]:
    """A cluster of three workers for a framework, whose runs are ended afterwards."""
    framework = request.param
    library = ROOT / f".{framework}"
    if framework in ("jax", "torch") and not (library / ".done").exists():
        pytest.skip(f"missing: {library.name} (make {library.name}/.done)")
    shutil.copy(HERE / "stalls.py", tmp_path)
    more = {"PYTHONPATH": str(library)} if framework in ("jax", "torch") else {}
    book = Notebook(prefix, {**env, **more, "TF_CPP_MIN_LOG_LEVEL": "3"}, tmp_path)
    book.ok(f"cluster = %tfcluster reserve --workers 3 --idle 60s {OPTIONS.get(framework, '')}")
    yield Stalls(book, tmp_path)
    book.ok("%tfcluster shutdown --force")
    book.close()


def judged(stalls: Stalls, framework: str, kind: str) -> tuple[bool, bool, str]:
    """Plant a stall; return whether the right task was named, whether a wrong one was certainly, and a line."""
    stalls.start(framework, kind)
    found: dict = {}

    def stands() -> bool:
        found.update(stalls.why())
        return "makes steps" not in found["text"]

    wait_for("a step that is older than why takes for progress", stands)
    stalls.reset()
    right = found["culprits"] == [blamed(kind)]
    row = next((t for t in found["tasks"] if t["task"] == blamed(kind)), {})
    verdict = f"{'right' if right else 'WRONG'} {'certain' if found['certain'] else 'not sure':8}"
    line = f"{framework:10} {kind:10} {verdict} {row.get('class', '?'):10} {found['text']}"
    assert re.fullmatch(CLASSES[kind], row.get("class", "")) or not right, line
    return right, found["certain"] and not right, line


@pytest.mark.engines
@pytest.mark.parametrize("stalls", list(QUICK), indirect=True)
def test_culprits(stalls: Stalls, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture) -> None:
    """The right task is named in at least 95 % of the stalls, and no wrong one certainly."""
    framework = request.node.callspec.params["stalls"]
    kinds = KINDS * ROUNDS if ROUNDS else QUICK[framework]
    found = [judged(stalls, framework, kind) for kind in kinds]
    right = sum(r for r, _, _ in found)
    with capsys.disabled():
        print("\n" + "\n".join(line for _, _, line in found))
        print(f"{framework}: {right} of {len(found)} right")
    assert not [line for _, wrong, line in found if wrong]
    assert right >= 0.95 * len(found), [line for good, _, line in found if not good]


@pytest.mark.parametrize("stalls", ["collective"], indirect=True)
def test_the_line_comes_and_goes(stalls: Stalls) -> None:
    """Below the progress bar one line says what holds the run up; it goes when steps go on."""
    stalls.start("collective", "fifo")
    book = stalls.notebook
    following = book.send("%tfcluster wait")
    wait_for("the line", lambda: stalls.run()["stall"] != "")
    line = stalls.run()["stall"]
    assert re.fullmatch(
        r"worker:1 is \d+ s behind: in load_batch \(stalls.py:\d+\), CPU \d+ %, waiting for a file; "
        r"0, 2 wait for it in the all-reduce of step \d+",
        line,
    ), line
    assert stalls.run()["state"] == "running"
    book.shows(following, "s behind: in load_batch")
    next(stalls.home.glob("fifo-1")).write_bytes(b"here")
    wait_for("steps", lambda: stalls.run()["stall"] == "")
    found = stalls.why()
    assert found["culprits"] == [] and "makes steps" in found["text"], found
    stalls.shell("stop")
    cell = book.finish(following)
    shown = [view for view in cell.plain if "s behind: in load_batch" in view]
    assert shown and all(view.count("s behind: in load_batch") == 1 for view in shown), cell.all
    assert "no run is active: run 1 was stopped" in book.ok("%tfcluster why --now").all
    verdict = book.ok("verdict = cluster.why()\nprint(sorted(verdict), verdict['run'])")
    assert "['certain', 'culprits', 'run', 'tasks', 'text'] 1" in verdict.text


@pytest.mark.engines
@pytest.mark.parametrize("stalls", ["collective"], indirect=True)
def test_a_straggler(stalls: Stalls) -> None:
    """All make the same steps; the one that needs longer for its own part is marked."""
    stalls.start("collective", "slow")

    def slow() -> list[str]:
        return [task["task"] for task in stalls.run()["tasks"] if task["slowdown"] > 1.5]

    wait_for("the straggler", lambda: slow() == ["worker:1"])
    shown = stalls.notebook.ok("%tfcluster status").all
    assert re.search(r"worker:1 takes 0\.\d+ s for a step on its own, \d\.\d× the median", shown), shown
    assert stalls.run()["stall"] == ""


@pytest.mark.engines
@pytest.mark.parametrize("stalls", ["collective"], indirect=True)
def test_processes_die_meanwhile(stalls: Stalls) -> None:
    """One clear line says it, and nothing is left."""
    stalls.start("collective", "sleep")
    env = stalls.notebook.env

    def begin() -> subprocess.Popen[str]:
        command = [env["TFCLUSTER_BINARY"], "why"]
        asked = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)  # often between the two snapshots; the answer is the same at any moment
        return asked

    asked = begin()
    os.kill(next(task["pid"] for task in stalls.run()["tasks"] if task["task"] == "worker:1"), signal.SIGKILL)
    out, err = asked.communicate(timeout=DEADLINE)
    assert "worker:1" in out and not err.strip(), (out, err)
    wait_for("the end of the run", lambda: not stalls.active())
    assert "run 1 failed" in (found := stalls.why())["text"] and found["culprits"] == ["worker:1"], found
    stalls.start("collective", "sleep")
    tasks = {task["task"]: task["pid"] for task in stalls.run()["tasks"]}
    asked = begin()
    os.kill(stalls.agent(tasks["worker:1"]), signal.SIGKILL)
    out, err = asked.communicate(timeout=DEADLINE)
    assert "worker:1" in out and not err.strip(), (out, err)
    wait_for("the end of the run", lambda: not stalls.active())
    assert "run 2 failed" in (found := stalls.why())["text"] and found["culprits"] == ["worker:1"], found
    wait_for("the end of the tasks", lambda: not any(alive(pid) for pid in tasks.values()))
    stalls.start("collective", "sleep")
    tasks = {task["task"]: task["pid"] for task in stalls.run()["tasks"]}
    asked = begin()
    os.kill(json.loads(stalls.shell("status", "--json"))["driver_pid"], signal.SIGKILL)
    out, err = asked.communicate(timeout=DEADLINE)
    assert "the cluster's driver died during the run" in out and not err.strip(), (out, err)
    wait_for("the end of the tasks", lambda: not any(alive(pid) for pid in tasks.values()))
    stalls.reset()  # with another driver, which ends with the notebook


@contextlib.contextmanager
def loaded() -> Iterator[None]:
    """Other programs use all cores, in bursts."""
    burst = """
import random, time
while True:
    end = time.time() + random.expovariate(1)
    while time.time() < end:
        pass
    time.sleep(random.expovariate(1))
"""
    others = [subprocess.Popen([sys.executable, "-c", burst]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.engines
@pytest.mark.parametrize("stalls", ["collective", "fit"], indirect=True)
def test_no_line_without_a_stall(stalls: Stalls, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture) -> None:
    """Ordinary training with jitter, while others use the cores, shows no line."""
    framework = request.node.callspec.params["stalls"]
    with loaded():
        stalls.start(framework, "none", SOAK / 2)
        shown, looks = [], 0
        while stalls.active():
            run = stalls.run()
            shown += [run["stall"]] if run["stall"] else []
            looks += 1
            time.sleep(1)
    run = stalls.run()
    with capsys.disabled():
        steps = run["progress"] and run["progress"]["step"]
        print(
            f"\n{framework}: {run['state']} after {run['seconds']:.0f} s, step {steps}, {looks} looks, lines: {shown}"
        )
    assert run["state"] == "finished" and looks > 5 and not shown
