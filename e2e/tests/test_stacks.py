"""stacks on real TensorFlow: what each task of a run that hangs does, in a cell, a shell and Python."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
from typing import Any

import pytest
from conftest import DEADLINE, Notebook, alive, wait_for

# worker:1 waits for a file to which nobody writes, the others for it in the all-reduce.
HANGS = """
def load_batch(path):
    with open(path) as source:
        return source.readline()

def main_fun(args, ctx):
    import os, sys
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def reduced():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000])))

    reduced()
    print("pid", os.getpid(), file=sys.stderr, flush=True)
    if ctx.task_index == 1:
        load_batch(args[0])
    reduced()
    ctx.barrier("the end")  # a task that leaves breaks the all-reduce of others that have not received its part
"""

# The digest of the weights after training that is the same each time.
TRAINS = """
def main_fun(args, ctx):
    import hashlib, time
    import numpy as np, keras, tensorflow as tf
    keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.random.default_rng(3).normal(size=(512, 8)).astype("float32")

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.01)

    print("fitting", flush=True)
    model.fit(x, x[:, :1], epochs=int(args[0]), batch_size=32, shuffle=False, verbose=0, callbacks=[Slow()])
    return hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
"""

# Holds the GIL in native code, and says whether its system call was interrupted.
HOLDS = """
def main_fun(args, ctx):
    import ctypes, os, sys
    print("pid", os.getpid(), file=sys.stderr, flush=True)
    left = ctypes.PyDLL(None).sleep(600)
    print("woken", left, flush=True)
"""


def pids(notebook: Notebook, tasks: int) -> dict[str, int]:
    """The tasks' processes, as they print them."""
    found: dict[str, int] = {}

    def printed() -> bool:
        text = notebook.ok("%tfcluster logs --now -n 1000").all
        found.update({m[1]: int(m[2]) for m in re.finditer(r"\[(worker:\d)\] pid (\d+)", text)})
        return len(found) == tasks

    wait_for("the tasks' pids", printed)
    return found


def shell(binary: pathlib.Path, env: dict[str, str], *words: str) -> str:
    """What a command prints."""
    done = subprocess.run([str(binary), *words], env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main_thread(task: dict[str, Any]) -> dict[str, Any]:
    return next(t for t in task["threads"] if t["main"])


def functions(task: dict[str, Any]) -> list[str]:
    return [frame["function"] for frame in main_thread(task)["frames"]]


def test_a_run_that_hangs(
    notebook: Notebook, env: dict[str, str], binary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    fifo = tmp_path / "data.csv"
    os.mkfifo(fifo)
    notebook.ok("%tfcluster reserve --workers 3 --idle 60s")
    notebook.ok(HANGS)
    notebook.ok(f"%tfcluster start main_fun {fifo}")
    found = pids(notebook, 3)
    waiting = notebook.send("%tfcluster wait")

    def asked() -> dict[str, Any]:
        return json.loads(shell(binary, env, "stacks", "--json"))

    wait_for("worker:1 in load_batch", lambda: "load_batch" in functions(asked()["tasks"][1]))
    said = asked()
    assert said["run"] == 1 and [t["task"] for t in said["tasks"]] == ["worker:0", "worker:1", "worker:2"]
    for task in said["tasks"]:
        assert (task["source"], task["error"], task["pid"]) == ("python", "", found[task["task"]]), task
        assert functions(task)[-1] == "main_fun" and task["rss_bytes"] > 1 << 20 and task["state"] == "S"
    reader = main_thread(said["tasks"][1])
    assert functions(said["tasks"][1])[-2:] == ["load_batch", "main_fun"] and reader["wait_channel"]
    frame = reader["frames"][-2]  # above it is IPython's own open
    assert frame["code"] == "with open(path) as source:" and frame["line"] == 2 and frame["file"].startswith("Cell In[")

    view = notebook.ok("%tfcluster stacks --now").all  # beside the cell that waits
    assert re.search(r"worker:0,2 ×2 · main thread · sleeping", view), view
    assert re.search(
        r"worker:1 · main thread · sleeping.*\n.*\n  > Cell In\[\d+\]:2 +load_batch +with open\(path\) as source:", view
    ), view
    assert "reduced()" in view and "tensorflow/python/" in view and "frames in tensorflow" in view
    assert notebook.finish_reply(notebook.send("%tfcluster stacks worker:1,2 --now"))["status"] == "ok"
    assert "worker:0" not in (one := notebook.ok("%tfcluster stacks --now worker:1-2").all) and "worker:2" in one
    assert "worker:0-2" in notebook.fails("%tfcluster stacks --now worker:7").error

    fifo.open("w").close()
    reply = notebook.finish_reply(waiting)
    assert reply["status"] == "ok", reply
    assert "no run is active" in notebook.fails("%tfcluster stacks").error


@pytest.mark.engines
def test_many_calls_do_not_change_a_result(notebook: Notebook) -> None:
    notebook.ok("%tfcluster reserve --workers 2 --idle 60s")
    notebook.ok(TRAINS)
    quiet = notebook.ok("run = %tfcluster start --wait main_fun 10\nrun.result").result
    assert re.fullmatch(r"'[0-9a-f]{64}'", quiet)
    # 500 calls while it trains: as many as it takes for the run to end, and the others of another run.
    calls = notebook.ok(
        "import tfcluster\nc = tfcluster.attach()\ncalls, results, kinds = 0, [], set()\n"
        "while calls < 500:\n"
        "    run = c.start(main_fun, ['10'])\n"
        "    while calls < 500:\n"
        "        try:\n"
        "            said = c.stacks(json=False)\n"
        "        except tfcluster.ClusterError as e:\n"
        "            assert 'no run is active' in str(e), e\n"
        "            break\n"
        "        calls += len(said['tasks'])\n"
        "        kinds.update(t['source'] for t in said['tasks'])\n"
        "    results.append(run.wait().result)\n"
        "repr((set(results), calls >= 500, 'python' in kinds))"
    )
    assert calls.result.strip('"') == f"({{{quiet}}}, True, True)"


@pytest.mark.engines
def test_the_gil_is_held_and_processes_die(notebook: Notebook, env: dict[str, str], binary: pathlib.Path) -> None:
    notebook.ok("%tfcluster reserve --workers 2 --idle 60s --no-zygote --framework none")
    notebook.ok(HOLDS)
    notebook.ok("%tfcluster start main_fun")
    found = pids(notebook, 2)
    for _ in range(3):
        said = json.loads(shell(binary, env, "stacks", "--json"))
        for task in said["tasks"]:
            assert (task["source"], functions(task)) == ("faulthandler", ["main_fun"]), task
    assert "worker:0-1 ×2" in (view := notebook.ok("%tfcluster stacks").all) and "holds the GIL" in view
    assert "woken" not in notebook.ok("%tfcluster logs").all

    def begin() -> subprocess.Popen[str]:
        """The command while it waits for tasks that hold the GIL."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([str(binary), "stacks"], env=env, text=True, **pipes)

    command = begin()
    os.kill(found["worker:1"], signal.SIGKILL)  # a task: the others are shown, or have ended with the run
    out, err = command.communicate(timeout=DEADLINE)
    assert "worker:" in out or "no run is active" in err, (out, err)

    wait_for("the end of the run", lambda: "failed" in notebook.ok("%tfcluster status").all)
    notebook.ok("%tfcluster start main_fun")
    found = pids_of_run(notebook, env, binary)
    driver = int(json.loads(shell(binary, env, "status", "--json"))["driver_pid"])
    command = begin()
    os.kill(driver, signal.SIGKILL)
    out, err = command.communicate(timeout=DEADLINE)
    assert command.returncode != 0 and len(err.strip().splitlines()) <= 3 and "driver" in err, (out, err)
    wait_for("the end of the tasks", lambda: not any(alive(pid) for pid in found))
    notebook.ok("%tfcluster reset")  # with another driver, which ends with the notebook


def pids_of_run(notebook: Notebook, env: dict[str, str], binary: pathlib.Path) -> list[int]:
    """The processes of the active run's tasks, which have begun to hold the GIL."""
    wait_for("the tasks", lambda: notebook.ok("%tfcluster logs --now").all.count("pid ") == 2)
    return [task["pid"] for task in json.loads(shell(binary, env, "stacks", "--json"))["tasks"]]
