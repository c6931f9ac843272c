"""Many runs on one cluster with few descriptors: nothing grows with their number."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import resource
import struct
import subprocess
from typing import NamedTuple

import pytest
from conftest import ROOT, Notebook, install, processes

RUNS = int(os.environ.get("TFCLUSTER_TEST_RUNS", "30"))
WARM = min(20, RUNS // 2)  # runs behind which nothing grows any more
TASKS = 4
SLACK = 2  # descriptors and files
BUSY = 16  # more threads than before may have been busy at one time
FREE = 64  # goroutines that have ended and are kept by the processors: 280 runs added 45
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


@pytest.fixture(scope="module")
def goroutines_at(binary: pathlib.Path) -> int:
    """The address in the program's memory of the number of its goroutines."""
    symbols = subprocess.run(["go", "tool", "nm", str(binary)], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\w+) \w runtime\.allglen$", symbols, re.MULTILINE)
    assert found, "this release of Go has no runtime.allglen"
    return int(found[1], 16)


class Held(NamedTuple):
    """What a process holds."""

    descriptors: int
    threads: int
    goroutines: int  # also those that have ended and are kept for later; 0 of other programs
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


def held(env: dict[str, str], goroutines_at: int) -> dict[str, Held]:
    """What each process that lasts holds."""
    found = {}
    for name, pid in names(env).items():
        with contextlib.suppress(FileNotFoundError):
            proc = pathlib.Path(f"/proc/{pid}")
            memory = next(int(n.split()[1]) for n in (proc / "status").read_text().splitlines() if "RssAnon" in n)
            goroutines = 0
            if os.readlink(proc / "exe") == env["TFCLUSTER_BINARY"]:
                with (proc / "mem").open("rb") as memory_of:
                    memory_of.seek(goroutines_at)
                    (goroutines,) = struct.unpack("q", memory_of.read(8))
            found[name] = Held(len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")), goroutines, memory)
    return found


def entries(env: dict[str, str]) -> int:
    """Files and folders of the cluster's own, besides those of its runs."""
    return sum(
        sum(1 for _ in pathlib.Path(env[top]).rglob("*")) for top in ("XDG_RUNTIME_DIR", "TFCLUSTER_HOME", "TMPDIR")
    )


def test_nothing_grows(notebook: Notebook, env: dict[str, str], goroutines_at: int) -> None:
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
            before, files = held(env, goroutines_at), entries(env)
    after = held(env, goroutines_at)
    print(
        "\n".join(f"{name}: {before.get(name)} -> {after[name]}" for name in after),
        f"\nfiles: {files} -> {entries(env)}",
    )
    assert before.keys() == after.keys() and len(before) >= TASKS + 2
    for name, now in after.items():
        then = before[name]
        grown = f"{name} grew from {then} to {now}"
        assert now.descriptors <= then.descriptors + SLACK, grown
        assert now.threads <= then.threads + BUSY, grown
        assert now.goroutines <= then.goroutines + FREE, grown
        assert now.memory <= then.memory + MEMORY, grown
    assert sum(1 for now in after.values() if now.goroutines) >= TASKS + 2
    assert entries(env) <= files + SLACK, f"files grew from {files} to {entries(env)}"


def test_reserve_directly_after_shutdown(notebook: Notebook) -> None:
    """The name of a cluster that has just ended is free, each time."""
    for _ in range(20):
        notebook.ok("%tfcluster reserve --name again --workers 1 --framework none --no-zygote --idle 120s")
        notebook.ok("%tfcluster shutdown")
