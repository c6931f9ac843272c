"""The code of a Spark task on an executor: it starts an agent by the agent's program, and returns.

The functions here are pickled by value, because executors have no package tfcluster. They use only the
standard library and pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

Order = dict[str, Any]  # agents to start: see spark_host.Host.do_launch


def agents_stage(order: Order) -> Any:
    """Returns a barrier stage's function: partition i starts order["agents"][i] and yields a line of JSON."""

    def run(partition: Iterable[Any]) -> Iterator[str]:
        from pyspark import BarrierTaskContext, TaskContext

        for _ in partition:
            pass
        context = BarrierTaskContext.get() if order["barrier"] else TaskContext.get()
        if context is None:
            raise RuntimeError(
                "this part of tfcluster runs in a task of Spark, and this is none: this is a fault of tfcluster"
            )
        yield json.dumps(start(order, context))

    return run


def agents_arrow(order: Order) -> Any:
    """Returns agents_stage for mapInArrow, which Spark Connect supports."""
    stage = agents_stage(order)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for line in stage(batches):
            yield pyarrow.RecordBatch.from_pydict({"said": [line]})

    return run


def census_arrow(seconds: float) -> Any:
    """Returns a stage that counts executors: each task yields its executor and times.

    A task lasts a moment, so that the others run elsewhere.
    """

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import socket
        import time

        import pyarrow

        for _ in batches:
            pass
        began = time.time()
        time.sleep(seconds)
        line = f"{socket.gethostname()} {os.getppid()} {began} {time.time()}"
        yield pyarrow.RecordBatch.from_pydict({"said": [line]})

    return run


def side_by_side(lines: Iterable[str]) -> dict[tuple[str, str], int]:
    """Returns how many tasks each executor ran at once, by host and process, from the answers of a census."""
    steps: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for line in lines:
        host, pid, began, ended = line.split()
        steps.setdefault((host, pid), []).extend([(float(began), 1), (float(ended), -1)])
    most = {}
    for executor, at in steps.items():
        now = most[executor] = 0
        for _, step in sorted(at):
            now += step
            most[executor] = max(most[executor], now)
    return most


def start(order: Order, context: Any) -> dict[str, Any]:
    """Starts the agent of this task's partition. Errors are returned; with hold they are raised."""
    import socket

    agent = order["agents"][context.partitionId()]
    try:
        said = _take(order, agent, context)
    except Exception as e:
        why = f"on {socket.gethostname()}: {str(e) or type(e).__name__}"
        said = {"executor": agent["executor"], "attempt": agent["attempt"], "error": why}
    if order["hold"]:
        if said.get("error"):  # otherwise the other tasks would run on, and Spark would not report this one
            raise RuntimeError(said["error"])
        if said.get("pid"):
            _stay(said["pid"])
    return said


def words_for(order: Order, agent: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of the order for a program in a slot: see Order in cluster/spark/slot."""
    return {**{k: order[k] for k in ("identity", "slots", "coordinator", "digest", "python", "hold")}, **agent}


def _take(order: Order, agent: dict[str, Any], context: Any) -> dict[str, Any]:
    """Runs the program that Spark fetched: it takes a slot and starts the agent."""
    import json
    import os
    import platform
    import stat
    import subprocess
    import sys

    from pyspark import SparkFiles

    ask = words_for(order, agent)
    ask["python"] = order["python"] or sys.executable
    gpus = context.resources().get("gpu")
    if gpus is not None:
        ask["gpus"], ask["assigned"] = ",".join(gpus.addresses), True
    path = SparkFiles.get(order["program"])
    try:
        mode = os.stat(path).st_mode
        if not mode & stat.S_IXUSR:
            os.chmod(path, mode | stat.S_IXUSR)
    except OSError as e:
        raise RuntimeError(
            f"the program {order['program']} is not in this executor's folder, or cannot be made executable: {e}; "
            "the executor's stderr in the Spark UI shows a full disk or a failed fetch"
        ) from e
    try:
        # Close every descriptor of the worker: while a child has one open, Spark misses the worker's end.
        ran = subprocess.run(
            [path, "spark-slot"], input=json.dumps(ask).encode(), capture_output=True, timeout=60, check=False
        )
    except OSError as e:
        raise RuntimeError(
            f"the program tfcluster cannot run here: {e}; this executor is {platform.machine()}, the driver "
            f"{order['machine']}: "
            "they must be equal, and Spark's work folder must allow programs to run (no mount option noexec)"
        ) from e
    if ran.returncode != 0:
        why = ran.stderr.decode(errors="replace").strip().splitlines()
        libc = " ".join(platform.libc_ver())
        raise RuntimeError(
            f"the program tfcluster does not run here (code {ran.returncode}): {why[0] if why else 'no output'}; "
            f"this executor has {libc or 'an unknown C library'}: what `make release` builds runs with any"
        )
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


def _stay(pid: int) -> None:
    """Keeps Spark's slot, with its GPUs, until the agent ends."""
    import os
    import time

    while True:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                if f.read().rpartition(")")[2].split()[0] in "ZX":
                    return
        except OSError:
            return
        time.sleep(0.1)
