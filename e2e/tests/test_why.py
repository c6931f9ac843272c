"""`why` and the automatic check, on runs that are made to stall.

make test plants some stalls once; make test-long all of them, TFCLUSTER_ROUNDS times in each framework.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import time
from collections.abc import Iterator

import pytest
from conftest import ROOT, Notebook, wait_for

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
ROUNDS = int(os.environ.get("TFCLUSTER_ROUNDS", "0"))
OPTIONS = {"jax": "--framework jax", "torch": "--framework pytorch"}


def blamed(kind: str) -> str:
    """Return the task that holds the others up."""
    return "worker:0" if kind == "export" else "worker:1"


class Stalls:
    """A cluster whose runs stall."""

    def __init__(self, notebook: Notebook, home: pathlib.Path) -> None:
        self.notebook = notebook
        self.home = home

    def start(self, framework: str, kind: str) -> None:
        """Start the program, and wait until it stalls."""
        for path in [*self.home.glob("stalled-*"), *self.home.glob("fifo-*")]:
            path.unlink()
        self.notebook.ok(f"%tfcluster start stalls.py {framework} {kind}")
        if kind != "none":
            wait_for(f"the stall {kind}", lambda: any(self.home.glob("stalled-*")) or not self.active())
            assert self.active(), self.notebook.ok("%tfcluster logs -n 50").all

    def active(self) -> bool:
        """Whether the run goes on."""
        return self.run()["state"] in ("starting", "running")

    def why(self) -> dict:
        """What why says."""
        return json.loads(self.notebook.ok("%tfcluster why --json").text)

    def run(self) -> dict:
        """The run's status."""
        return json.loads(self.notebook.ok("%tfcluster status --json").text)["run"]

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
    book.ok(f"%tfcluster reserve --workers 3 --idle 60s {OPTIONS.get(framework, '')}")
    yield Stalls(book, tmp_path)
    book.ok("%tfcluster shutdown --force")
    book.close()


def judged(stalls: Stalls, framework: str, kind: str) -> tuple[bool, bool, str]:
    """Plant a stall; return whether the right task was named, whether a wrong one was certainly, and a line."""
    stalls.start(framework, kind)
    time.sleep(4)  # until no step is younger than why takes for progress
    found = stalls.why()
    stalls.reset()
    right = found["culprits"] == [blamed(kind)]
    row = next((t for t in found["tasks"] if t["task"] == blamed(kind)), {})
    verdict = f"{'right' if right else 'WRONG'} {'certain' if found['certain'] else 'not sure':8}"
    line = f"{framework:10} {kind:10} {verdict} {row.get('class', '?'):10} {found['text']}"
    assert re.fullmatch(CLASSES[kind], row.get("class", "")) or not right, line
    return right, found["certain"] and not right, line


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
    wait_for("the line", lambda: stalls.run()["stall"] != "", 120)
    line = stalls.run()["stall"]
    assert re.fullmatch(
        r"worker:1 is \d+ s behind: in load_batch \(stalls.py:\d+\), CPU \d+ %, waiting for a file; "
        r"0, 2 wait for it in the all-reduce of step \d+",
        line,
    ), line
    assert stalls.run()["state"] == "running"
    next(stalls.home.glob("fifo-1")).write_bytes(b"here")
    wait_for("steps", lambda: stalls.run()["stall"] == "", 120)
    found = stalls.why()
    assert found["culprits"] == [] and "makes steps" in found["text"], found
    book.ok("%tfcluster stop --now")
    cell = book.finish(following)
    shown = [view for view in cell.plain if "s behind: in load_batch" in view]
    assert shown and all(view.count("s behind: in load_batch") == 1 for view in shown), cell.all
    assert "no run is active: run 1 was stopped" in stalls.why()["text"]
