"""What runs in a task of Spark's on an executor: it starts agents and returns.

The functions here are pickled by value: an executor has no package tfcluster. They use the standard library and
pyspark alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_FULL = 0.3  # seconds
Order = dict[str, Any]  # what to start: see spark_host.Host.launch


def agents_stage(order: Order) -> Any:
    """The function of a barrier stage: partition i starts order["agents"][i] and yields one line of JSON about it."""

    def run(partition: Iterable[Any]) -> Iterator[str]:
        from pyspark import BarrierTaskContext, TaskContext

        for _ in partition:
            pass
        context = BarrierTaskContext.get() if order["barrier"] else TaskContext.get()
        if context is None:
            raise RuntimeError("this runs in a task of Spark only")
        yield json.dumps(start(order, context))

    return run


def agents_arrow(order: Order) -> Any:
    """agents_stage for mapInArrow, which also Spark Connect has."""
    stage = agents_stage(order)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for line in stage(batches):
            yield pyarrow.RecordBatch.from_pydict({"said": [line]})

    return run


def census_arrow(seconds: float) -> Any:
    """Who the executors are: each task says where it runs, and stays so that others land elsewhere."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import socket
        import time

        import pyarrow

        for _ in batches:
            pass
        time.sleep(seconds)
        yield pyarrow.RecordBatch.from_pydict({"said": [f"{socket.gethostname()} {os.getppid()}"]})

    return run


def start(order: Order, context: Any) -> dict[str, Any]:
    """Starts the agent of this task's partition; what went wrong is a value, not an exception of Spark's."""
    import socket
    import time

    agent = order["agents"][context.partitionId()]
    said: dict[str, Any] = {"executor": agent["executor"], "attempt": agent["attempt"], "host": socket.gethostname()}
    try:
        slot = _claim(order)
        if slot is None:
            time.sleep(_FULL)  # this slot stays taken meanwhile, so that another task lands elsewhere
            return {**said, "full": True}
        with slot:
            said["pid"] = _start(order, agent, context, slot.fileno())
    except Exception as e:
        if order["hold"]:  # the others would stay, and Spark never tell of this one
            raise RuntimeError(str(e).strip() or type(e).__name__) from None
        said["error"] = str(e).strip() or type(e).__name__
    return said


def _start(order: Order, agent: dict[str, Any], context: Any, slot: int) -> int:
    import os
    import subprocess
    import sys

    program = _program(order)
    _reach(order)
    folder = _folder()
    config = {**agent["config"], "runtime_dir": folder, "own_runtime_dir": True, "watch": _owners(bool(order["hold"]))}
    config["log_file"] = os.path.join(folder, "agent.log")
    config["python"] = order["python"] or sys.executable
    env = {k: v for k, v in os.environ.items() if k not in order["drop_env"]}
    gpus = context.resources().get("gpu")
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.addresses)
        config["gpus_assigned"] = True
    # The shell ends at once, so that the agent is no child of this worker, which Spark uses again. Every descriptor
    # of the worker's is closed: while one is open in a child, Spark does not see the worker's end.
    started = subprocess.run(
        ["/bin/sh", "-c", 'exec 3<&0; "$0" agent <&3 3<&- >/dev/null 2>>"$1" & echo $!', program, config["log_file"]],
        input=json.dumps(config).encode(),
        stdout=subprocess.PIPE,
        env=env,
        cwd=folder,
        pass_fds=[slot],
        start_new_session=True,
        timeout=30,
        check=True,
    )
    pid = int(started.stdout)
    if order["hold"]:
        _stay(pid)
    return pid


def _claim(order: Order) -> Any:
    """A slot of this executor in which no agent of the cluster lives: a file whose lock the agent inherits.

    Spark's own slots are free again once a stage is over, so it would put two agents where one has room.
    """
    import fcntl
    import os

    base = _base()
    executor = _owners(False)
    pid = executor[0]["pid"] if executor else os.getppid()
    i = 0
    while not order["slots"] or i < order["slots"]:
        slot = open(os.path.join(base, f"slot-{order['cluster']}-{pid}-{i}"), "wb")  # noqa: SIM115 - the caller's
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return slot
        except BlockingIOError:
            slot.close()
        i += 1
    return None


def _program(order: Order) -> str:
    """The agent's program as it came to this executor, tried once."""
    import hashlib
    import os
    import platform
    import stat
    import subprocess

    from pyspark import SparkFiles

    path = SparkFiles.get(order["program"])
    try:
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
    except OSError as e:
        raise RuntimeError(f"Spark did not bring the program {order['program']} to this executor: {e}") from e
    if digest != order["digest"]:
        raise RuntimeError(f"the program {path} is not the driver's: its digest is {digest[:12]}…; reserve again")
    mode = os.stat(path).st_mode
    if not mode & stat.S_IXUSR:
        os.chmod(path, mode | stat.S_IXUSR)
    try:
        tried = subprocess.run([path, "version"], capture_output=True, timeout=30, check=False)
    except OSError as e:
        raise RuntimeError(
            f"the program cannot run here: this executor is {platform.machine()}, the driver {order['machine']} ({e})"
        ) from e
    if tried.returncode != 0:
        why = tried.stderr.decode(errors="replace").strip().splitlines()
        libc = " ".join(platform.libc_ver())
        raise RuntimeError(
            f"the program does not run here (code {tried.returncode}): {why[0] if why else 'no word'}; "
            f"this executor has {libc or 'an unknown C library'}: what `make release` builds runs with any"
        )
    return path


def _reach(order: Order) -> None:
    """The driver must be reachable before anything is started: that is said at once, naming both sides."""
    import contextlib
    import socket

    host, _, port = str(order["coordinator"]).rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), timeout=4)):
            pass
    except OSError as e:
        raise RuntimeError(
            f"the executor on {socket.gethostname()} cannot reach the driver at {order['coordinator']}: {e}; "
            "--advertise HOST[:PORTS] names an address that it can dial"
        ) from e


def _base() -> str:
    """This user's folder for agents on this machine: its path must be short, sockets are in it."""
    import os
    import stat
    import tempfile

    base = os.path.join(tempfile.gettempdir(), f"tfcluster-{os.getuid()}")
    if len(base) > 50:
        base = f"/tmp/tfcluster-{os.getuid()}"
    os.makedirs(base, 0o700, exist_ok=True)
    info = os.lstat(base)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise RuntimeError(f"{base} is not a folder of this user's: remove it")
    return base


def _folder() -> str:
    """A folder of this agent's own. What killed agents left is removed."""
    import fcntl
    import os
    import shutil
    import tempfile

    base = _base()
    for name in os.listdir(base):
        path = os.path.join(base, name)
        try:
            if name.startswith("agent-"):
                with open(os.path.join(path, "alive"), "rb") as alive:
                    fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            elif name.startswith("slot-") and not os.path.exists(f"/proc/{name.split('-')[-2]}"):
                os.unlink(path)
        except OSError:
            continue  # it lives, or is being made
    return tempfile.mkdtemp(prefix="agent-", dir=base)


def _owners(hold: bool) -> list[dict[str, Any]]:
    """The processes with which the agent ends: the executor's JVM, and this worker where it holds the slot."""
    import os

    owners = [{"pid": os.getpid(), "what": "Spark's task"}] if hold else []
    pid = os.getppid()
    for _ in range(3):  # the worker's daemon stands between
        if pid <= 1:
            break
        try:
            program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            break
        if program.startswith("java"):
            return [*owners, {"pid": pid, "what": "the Spark executor"}]
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            pid = int(f.read().rpartition(")")[2].split()[1])
    return owners


def _stay(pid: int) -> None:
    """Keeps Spark's slot, and with it its GPUs, until the agent ends."""
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
