"""Many runs on one cluster with few descriptors: nothing grows with their number."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource

from conftest import Notebook, processes

RUNS = int(os.environ.get("TFCLUSTER_TEST_RUNS", "30"))
WARM = min(20, RUNS // 2)  # runs behind which nothing grows any more
TASKS = 4
SLACK = 2  # descriptors and threads
MEMORY = 10 << 10  # kB
SCRIPT = """
import os, sys
for n in range(20):
    print("line", n, "of", os.environ["TASK_INDEX"])
print("err of", os.environ["TASK_INDEX"], file=sys.stderr)
"""


def names(env: dict[str, str]) -> dict[str, int]:
    """The processes of the test that last, by what they are."""
    found: dict[str, int] = {}
    for pid, command in sorted(processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}").items()):
        for kind in (" driver", " agent", " forker", "ipykernel", " kernel"):
            if command.endswith(kind) or kind in ("ipykernel", " kernel") and kind.strip() in command:
                found[f"{kind.strip()} {sum(name.startswith(kind.strip()) for name in found)}"] = pid
                break
    return found


def held(env: dict[str, str]) -> dict[str, tuple[int, int, int]]:
    """Descriptors, threads, and the memory of its own in kB, of each process that lasts."""
    found = {}
    for name, pid in names(env).items():
        with contextlib.suppress(FileNotFoundError):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
            proc = pathlib.Path(f"/proc/{pid}")
            found[name] = (len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")), memory)
    return found


def entries(env: dict[str, str]) -> int:
    """Files and folders of the cluster's own, besides those of its runs."""
    return sum(
        sum(1 for _ in pathlib.Path(env[top]).rglob("*")) for top in ("XDG_RUNTIME_DIR", "TFCLUSTER_HOME", "TMPDIR")
    )


def test_nothing_grows(notebook: Notebook, env: dict[str, str]) -> None:
    """All lines of every run; then as many descriptors, threads and files as behind the first runs."""
    for pid in processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
    (notebook.cwd / "lines.py").write_text(SCRIPT)
    notebook.ok(f"%tfcluster reserve --workers {TASKS} --framework none --no-zygote --idle 120s")
    before: dict[str, tuple[int, int, int]] = {}
    files = 0
    for number in range(RUNS):
        cell = notebook.ok("run = %tfcluster start --wait lines.py\nrun.state")
        assert cell.result == "'finished'", f"run {number + 1}: {cell.all}"
        assert cell.all.count("] line ") == TASKS * 20 and cell.all.count("] err") == TASKS, (
            f"run {number + 1}: {cell.all}"
        )
        if number == WARM:
            before, files = held(env), entries(env)
    after = held(env)
    print(
        "\n".join(f"{name}: {before.get(name)} -> {after[name]}" for name in after),
        f"\nfiles: {files} -> {entries(env)}",
    )
    assert before.keys() == after.keys() and len(before) >= TASKS + 2
    for name, (descriptors, threads, memory) in after.items():
        assert descriptors <= before[name][0] + SLACK, (
            f"{name}: descriptors grew from {before[name][0]} to {descriptors}"
        )
        assert threads <= before[name][1] + SLACK + 4, f"{name}: threads grew from {before[name][1]} to {threads}"
        assert memory <= before[name][2] + MEMORY, f"{name}: memory grew from {before[name][2]} to {memory} kB"
    assert entries(env) <= files + SLACK, f"files grew from {files} to {entries(env)}"
