"""Many runs on one cluster with few descriptors: nothing grows with their number."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import resource
import struct
import subprocess
import time
from typing import NamedTuple

import pytest
from conftest import ROOT, Notebook, install, processes

RUNS = int(os.environ.get("TFCLUSTER_TEST_RUNS", "30"))
WARM = min(20, RUNS // 2)  # runs behind which nothing grows any more
TASKS = 4
SLACK = 2  # descriptors, goroutines and files; threads, and 4 that may have been busy at one time
SETTLED = 30  # seconds within which what a run needed is given back
MEMORY = 10 << 10  # kB
SCRIPT = """
import os, sys
for n in range(20):
    print("line", n, "of", os.environ["TASK_INDEX"])
print("err of", os.environ["TASK_INDEX"], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program with symbols, by which its goroutines can be counted."""
    path = tmp_path_factory.mktemp("program") / "tfcluster"
    subprocess.run(["go", "build", "-trimpath", "-o", str(path), "."], cwd=ROOT, check=True)
    return path


@pytest.fixture(scope="module")
def prefix(binary: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the kernel of that program is installed."""
    path = tmp_path_factory.mktemp("prefix")
    install(binary, path)
    return path


class Goroutines:
    """Counts the goroutines of a process that runs the program, in its memory."""

    STATUS = 144  # where runtime.g has its atomicstatus, in Go 1.26 on 64 bits
    DEAD, SCAN, MOST = 6, 0x1000, 11  # _Gdead, _Gscan, and the last status

    def __init__(self, binary: pathlib.Path) -> None:
        symbols = subprocess.run(["go", "tool", "nm", str(binary)], check=True, capture_output=True, text=True).stdout
        places = {}
        for name in ("allglen", "allgptr"):
            found = re.search(rf"(\w+) \w runtime\.{name}$", symbols, re.MULTILINE)
            assert found, f"this release of Go has no runtime.{name}"
            places[name] = int(found[1], 16)
        self._places = places

    def of(self, pid: int) -> int:
        """Those that have not ended; the runtime keeps others for later."""
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        try:
            (length,) = struct.unpack("q", os.pread(memory, 8, self._places["allglen"]))
            (array,) = struct.unpack("Q", os.pread(memory, 8, self._places["allgptr"]))
            each = struct.unpack(f"{length}Q", os.pread(memory, 8 * length, array))
            read = [struct.unpack("I", os.pread(memory, 4, g + self.STATUS))[0] & ~self.SCAN for g in each]
        finally:
            os.close(memory)
        assert max(read) <= self.MOST, f"this release of Go has its status elsewhere: {read}"
        return sum(status not in (self.DEAD, self.MOST) for status in read)


@pytest.fixture(scope="module")
def goroutines(binary: pathlib.Path) -> Goroutines:
    """Counts the goroutines of the program's processes."""
    return Goroutines(binary)


class Held(NamedTuple):
    """What a process holds."""

    descriptors: int
    threads: int
    goroutines: int  # 0 of other programs
    memory: int  # of its own, in kB


def names(env: dict[str, str]) -> dict[str, int]:
    """The processes of the test that last, by what they are."""
    found: dict[str, int] = {}
    for pid, command in sorted(processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}").items()):
        for kind in (" driver", " agent", " forker", "ipykernel", " kernel"):
            if command.endswith(kind) or kind in ("ipykernel", " kernel") and kind.strip() in command:
                found[f"{kind.strip()} {sum(name.startswith(kind.strip()) for name in found)}"] = pid
                break
    return found


def held(env: dict[str, str], goroutines: Goroutines) -> dict[str, Held]:
    """What each process that lasts holds."""
    found = {}
    for name, pid in names(env).items():
        with contextlib.suppress(FileNotFoundError):
            proc = pathlib.Path(f"/proc/{pid}")
            memory = next(int(n.split()[1]) for n in (proc / "status").read_text().splitlines() if "RssAnon" in n)
            ours = os.readlink(proc / "exe") == env["TFCLUSTER_BINARY"]
            live = goroutines.of(pid) if ours else 0
            found[name] = Held(len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")), live, memory)
    return found


def entries(env: dict[str, str]) -> int:
    """Files and folders of the cluster's own, besides those of its runs."""
    return sum(
        sum(1 for _ in pathlib.Path(env[top]).rglob("*")) for top in ("XDG_RUNTIME_DIR", "TFCLUSTER_HOME", "TMPDIR")
    )


def test_nothing_grows(notebook: Notebook, env: dict[str, str], goroutines: Goroutines) -> None:
    """All lines of every run; then as many descriptors, threads and files as behind the first runs."""
    for pid in processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
    (notebook.cwd / "lines.py").write_text(SCRIPT)
    notebook.ok(f"%tfcluster reserve --workers {TASKS} --framework none --no-zygote --idle 120s")
    before: dict[str, Held] = {}
    files = 0
    for number in range(RUNS):
        cell = notebook.ok("run = %tfcluster start --wait lines.py\nrun.state")
        assert cell.result == "'finished'", f"run {number + 1}: {cell.all}"
        assert cell.all.count("] line ") == TASKS * 20 and cell.all.count("] err") == TASKS, (
            f"run {number + 1}: {cell.all}"
        )
        if number == WARM:
            before, files = held(env, goroutines), entries(env)
    deadline = time.monotonic() + SETTLED
    while (grown := growth(before, after := held(env, goroutines))) and time.monotonic() < deadline:
        time.sleep(0.2)
    print(
        "\n".join(f"{name}: {before.get(name)} -> {after[name]}" for name in after),
        f"\nfiles: {files} -> {entries(env)}",
    )
    assert before.keys() == after.keys() and len(before) >= TASKS + 2
    assert not grown, "\n".join(grown)
    assert sum(1 for now in after.values() if now.goroutines) >= TASKS + 2
    assert entries(env) <= files + SLACK, f"files grew from {files} to {entries(env)}"


def growth(before: dict[str, Held], after: dict[str, Held]) -> list[str]:
    """The processes that hold more than before, with what they hold."""
    more = Held(SLACK, SLACK + 4, SLACK, MEMORY)
    return [
        f"{name} grew from {before[name]} to {now}"
        for name, now in after.items()
        if name in before and any(x > y + z for x, y, z in zip(now, before[name], more, strict=True))
    ]


def test_reserve_directly_after_shutdown(notebook: Notebook) -> None:
    """The name of a cluster that has just ended is free, each time."""
    for _ in range(20):
        notebook.ok("%tfcluster reserve --name again --workers 1 --framework none --no-zygote --idle 120s")
        notebook.ok("%tfcluster shutdown")
