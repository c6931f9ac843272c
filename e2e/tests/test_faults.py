"""Faults under real TensorFlow: the first cause is named, echoes are not, and the next start goes on."""

from __future__ import annotations

import os
import pathlib
import re
import signal
from collections.abc import Iterator

import pytest
from conftest import Notebook, wait_for

pytestmark = pytest.mark.engines

MEMORY_CGROUP = pathlib.Path("/sys/fs/cgroup/memory")

TRAIN = """
def main_fun(args, ctx):
    import os, sys, time
    import numpy as np, keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    print("pid", os.getpid(), file=sys.stderr, flush=True)
    x = np.ones((64, 8), "float32")

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.05)

    epochs = int(args[0])
    fault = args[1] if len(args) > 1 else ""
    if fault == "raise" and ctx.task_index == 1:
        raise ValueError("the learning rate is a fish")
    if fault == "memory" and ctx.task_index == 1:
        bytearray(1 << 46)
    if fault == "oom" and ctx.task_index == 1:
        hold = [bytearray(os.urandom(1 << 24)) for _ in range(200)]
    history = model.fit(x, x[:, :1], epochs=epochs, batch_size=16, verbose=0, callbacks=[Slow()])
    print("trained", len(history.history["loss"]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def trainer(kernel: Notebook) -> Iterator[Notebook]:
    """Two executors with TensorFlow warm, and a program, for all tests."""
    kernel.enter(kernel.cwd)
    kernel.ok("%tfcluster reserve --workers 2 --idle 60s")
    kernel.ok(TRAIN)
    yield kernel
    kernel.leave()


def pids(notebook: Notebook) -> dict[str, int]:
    """The tasks' processes, as they told."""
    found: dict[str, int] = {}

    def told() -> bool:
        text = notebook.ok("%tfcluster logs --now -n 1000").all
        found.update({m[1]: int(m[2]) for m in re.finditer(r"\[(worker:\d)\] pid (\d+)", text)})
        return len(found) == 2

    wait_for("the tasks' pids", told)
    return found


def again(notebook: Notebook) -> None:
    """The executors are good for another run."""
    assert "trained 1" in notebook.ok("%tfcluster start --wait main_fun 1").all


def test_exception(trainer: Notebook) -> None:
    """The user's own traceback, and only the task that raised."""
    cell = trainer.fails("%tfcluster start --wait main_fun 50 raise")
    first = cell.error.splitlines()[0]
    assert "worker:1" in first and "ValueError: the learning rate is a fish" in first, cell.error
    assert "main_fun" in cell.error
    again(trainer)


def test_memory_error(trainer: Notebook) -> None:
    """Python's own word about memory."""
    cell = trainer.fails("%tfcluster start --wait main_fun 50 memory")
    assert "MemoryError" in cell.error and "--memory" in cell.error, cell.error
    again(trainer)


def test_killed_for_memory(notebook: Notebook) -> None:
    """A kill is called out of memory where the cgroup says so: here all of the cluster is in one."""
    if not os.access(MEMORY_CGROUP / "cgroup.procs", os.W_OK):
        pytest.skip("missing: a memory cgroup (v1) that may be written")
    group = MEMORY_CGROUP / f"tfcluster-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(2500 << 20))
        (group / "cgroup.procs").write_text(str(notebook.pid))  # what it starts from now on is in it too
        notebook.ok("%tfcluster reserve --workers 2 --idle 60s")
        notebook.ok(TRAIN)
        cell = notebook.fails("%tfcluster start --wait main_fun 50 oom")
        first = cell.error.splitlines()[0]
        assert "worker:1" in first and "out of memory" in first, cell.error
        again(notebook)
        notebook.close()
        wait_for("the end of the group's processes", lambda: not (group / "cgroup.procs").read_text().strip())
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        wait_for("an empty group", lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()


def test_stopped(trainer: Notebook) -> None:
    """A stopped worker is the cause, although only its peer complains."""
    trainer.ok("%tfcluster start main_fun 2000")
    found = pids(trainer)
    os.kill(found["worker:1"], signal.SIGSTOP)
    cell = trainer.fails("%tfcluster wait")
    first = cell.error.splitlines()[0]
    assert "worker:1" in first and "stopped" in first, cell.error
    again(trainer)


def test_chief_of_the_gang_killed(trainer: Notebook) -> None:
    """Worker 0 leads the collectives: its loss is told as any other's."""
    trainer.ok("%tfcluster start main_fun 2000")
    found = pids(trainer)
    os.kill(found["worker:0"], signal.SIGKILL)
    cell = trainer.fails("%tfcluster wait")
    assert re.search(r"worker:0 .*signal 9", cell.error.splitlines()[0]), cell.error
    again(trainer)


def test_restart_of_the_gang(trainer: Notebook) -> None:
    """With --max-restarts the gang is started again by itself."""
    trainer.ok("%tfcluster start --max-restarts 1 main_fun 20")
    found = pids(trainer)
    os.kill(found["worker:1"], signal.SIGKILL)
    cell = trainer.ok("%tfcluster wait")
    assert "restart 1 of 1" in cell.all and "finished" in cell.all, cell.all


SERVERS = """
def main_fun(args, ctx):
    import os, sys, time
    import tensorflow as tf
    print("pid", os.getpid(), file=sys.stderr, flush=True)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ctx.job_name != "chief":
        tf.distribute.Server(resolver.cluster_spec(), job_name=ctx.job_name, task_index=ctx.task_index).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        v = tf.Variable(0.0)

    @tf.function
    def step():
        v.assign_add(1.0)

    for i in range(int(args[0])):
        coordinator.schedule(step)
        coordinator.join()
        ctx.report(step=i, v=float(v))
        time.sleep(0.05)
    print("trained to", float(v), file=sys.stderr)
"""


def test_parameter_servers(notebook: Notebook) -> None:
    """A lost worker is gone on without, and it is said; a lost ps fails the run."""
    notebook.ok("%tfcluster reserve --chief --workers 2 --ps 1 --idle 60s")
    notebook.ok(SERVERS)

    def pid_of(task: str, run: int) -> int:
        seen: list[str] = []

        def told() -> bool:
            text = notebook.ok(f"%tfcluster logs --now --run {run} -n 1000 --task {task}").all
            seen[:] = re.findall(r"pid (\d+)", text)
            return bool(seen)

        wait_for(f"the pid of {task}", told)
        return int(seen[-1])

    notebook.ok("%tfcluster start main_fun 150")
    # ParameterServerStrategy begins with all its workers; one that is lost before hangs the chief.
    wait_for("the first step", lambda: "step" in notebook.ok("%tfcluster status --now").all)
    os.kill(pid_of("worker:1", 1), signal.SIGKILL)
    cell = notebook.ok("%tfcluster wait")
    assert "continues with 1 other worker" in cell.all, cell.all
    # A step the lost worker had applied but not answered is scheduled again: TensorFlow promises "at least once".
    assert re.search(r"trained to 15[0-2]\.", cell.all), cell.all
    notebook.ok("%tfcluster start main_fun 2000")
    os.kill(pid_of("ps:0", 2), signal.SIGKILL)
    cell = notebook.fails("%tfcluster wait")
    assert re.search(r"ps:0 .*signal 9", cell.error.splitlines()[0]), cell.error
