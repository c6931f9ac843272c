"""Rows 3 to 5 and stop: start again, start cold, the death of a task, and the stop of a fit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

from measure import Figure, Options, median, spread
from workplace import DEADLINE, BenchError, Kernel, Workplace

ENTER = """
def main_fun(args, ctx):
    import os, time
    import tensorflow, keras
    print("entered", repr(time.time()), flush=True)
    if "raise" in args:
        raise ValueError("as the bench asked")
    if "kill" in args and ctx.task_index == 0:
        os.kill(os.getpid(), 9)
"""
ENTERED = re.compile(r"\[worker:(\d)\] entered (\d+\.\d+)")
RESERVE = "%tfcluster reserve --workers 2 --idle 5m"
ALONE = "import tensorflow, keras, time; print(repr(time.time()))"
LIVES = """%%tfcluster start
import os, time
print("pid", os.getpid(), flush=True)
time.sleep(600)
"""

FIT = """
def main_fun(args, ctx):
    import numpy as np, keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.ones((2048, 64), "float32")
    try:
        model.fit(x, x[:, :1], epochs=1_000_000, batch_size=64, verbose=0)
    except SystemExit:
        print("saved", flush=True)
        raise
"""


def again(place: Workplace, options: Options) -> list[Figure]:
    """start on a held cluster, after runs that finished, raised and were killed."""
    samples: dict[str, list[float]] = {"finished": [], "raise": [], "kill": []}
    ways = list(samples)
    with place.kernel("tfcluster") as kernel:
        kernel.ok(RESERVE)
        kernel.ok(ENTER)
        entered(kernel)  # the first start; what it takes is row 4's
        for n in range(options.times(5, 2) * len(ways)):
            way = ways[n % len(ways)]
            options.say(f"start again after a run that was to end so: {way}")
            if way != "finished":
                _failed(kernel, way)
            samples[way].append(entered(kernel))
        kernel.ok("%tfcluster shutdown")
    figures = []
    names = {
        "finished": ("after a finished run", "TFoS 2.3 s (quoted)"),
        "raise": ("after one that raised", "TFoS impossible (quoted)"),
        "kill": ("after one killed", "TFoS impossible (quoted)"),
    }
    for way, (name, reference) in names.items():
        values = samples[way]
        compared = f"÷ 2.3 s = {median(values) / 2.3:.2g}" if way == "finished" else "–"
        holds = median(values) <= 1
        figures.append(
            Figure(3, f"start again, {name}", reference, spread(values), compared, "1.00 s", holds, {"seconds": values})
        )
    return figures


def cold(place: Workplace, options: Options) -> list[Figure]:
    """reserve and start with nothing running, beside two Pythons that import the same at the same time."""
    ours: list[float] = []
    theirs: list[float] = []
    ends: list[float] = []
    gone: list[float] = []
    for n in range(options.times(4, 2)):
        options.say(f"cold start and plain import, round {n + 1}")
        for side in ("theirs", "ours") if n % 2 == 0 else ("ours", "theirs"):
            if side == "theirs":
                theirs.append(imported(place))
                continue
            with place.kernel("tfcluster") as kernel:
                kernel.ok(ENTER)
                ours.append(entered(kernel, f"{RESERVE}\n"))
                ends.append(kernel.ok("%tfcluster shutdown").seconds)
            gone.append(place.quiet())
    bound = median(theirs) + 1
    return [
        Figure(
            4,
            "reserve + start, cold",
            f"2 imports at once {spread(theirs)}",
            spread(ours),
            f"{median(ours) - median(theirs):+.2f} s",
            "+1.00 s",
            median(ours) <= bound,
            {"seconds": {"import": theirs, "tfcluster": ours}},
        ),
        Figure(
            4,
            "shutdown",
            "TFoS 5.4 s (quoted)",
            spread(ends),
            f"÷ 5.4 s = {median(ends) / 5.4:.2g}",
            "0.50 s",
            median(ends) <= 0.5,
            {"seconds": ends, "seconds_until_no_process_after_kernel_shutdown": gone},
        ),
    ]


def killed(place: Workplace, options: Options) -> list[Figure]:
    """kill -9 of a task while a cell waits: the time until the cell's error reply is in."""
    values: list[float] = []
    with place.kernel("tfcluster") as kernel:
        kernel.ok(RESERVE)
        for n in range(options.times(5, 2)):
            options.say(f"kill -9 of a task, round {n + 1}")
            kernel.ok(LIVES)
            request, cell = kernel.send("%tfcluster wait")
            kernel.first_sign(request, cell, 1.0)
            pid = _pid(place, "worker:1")
            time.sleep(0.1)  # a cell that fails at once is answered 50 ms after it was sent: Run All has sent all then
            at = time.time()
            os.kill(pid, signal.SIGKILL)
            kernel.finish(request, cell)
            if cell.status != "error" or "worker:1" not in cell.error or "SIGKILL" not in cell.error:
                raise BenchError(f"the cell does not name the cause: {cell.all[-1000:]}")
            values.append(cell.ended - at)
        kernel.ok("%tfcluster shutdown")
    return [
        Figure(
            5,
            "task killed: the cell's error reply",
            "TFoS 28 s to never (quoted)",
            spread(values),
            f"÷ 28 s = {median(values) / 28:.2g}",
            "1.00 s",
            median(values) <= 1,
            {"seconds": values},
        )
    ]


def stopped(place: Workplace, options: Options) -> list[Figure]:
    """stop of a two-worker Keras fit: the time until the cell's reply. Both tasks have saved then."""
    values: list[float] = []
    with place.kernel("tfcluster") as kernel:
        kernel.ok(RESERVE)
        kernel.ok(FIT)
        for n in range(options.times(5, 2)):
            options.say(f"stop of a fit, round {n + 1}")
            kernel.ok("%tfcluster start main_fun")
            end = time.monotonic() + DEADLINE
            while not re.search(r"step [1-9]", kernel.ok("%tfcluster status").all):
                if time.monotonic() > end:
                    raise BenchError("the fit takes no step")
                time.sleep(0.2)
            cell = kernel.ok("%tfcluster stop")
            values.append(cell.answered - cell.sent)
            lines = kernel.ok("%tfcluster logs -n 100").all
            if lines.count("saved") != 2:
                raise BenchError(f"not both tasks saved: {lines[-1000:]}")
        kernel.ok("%tfcluster shutdown")
    return [
        Figure(
            5,
            "stop of a two-worker Keras fit",
            "itself before: 30 s (quoted)",
            spread(values),
            f"÷ 30 s = {median(values) / 30:.2g}",
            "3.00 s",
            median(values) <= 3,
            {"seconds": values},
        )
    ]


def entered(kernel: Kernel, before: str = "") -> float:
    """Seconds from sending the cell that starts until every task is in main_fun with TensorFlow imported."""
    start = kernel.ok(f"{before}%tfcluster start main_fun")
    cell = kernel.ok("%tfcluster wait")
    found = {task: float(at) for task, at in ENTERED.findall(f"{start.text}\n{cell.text}")}
    if len(found) != 2:
        raise BenchError(f"tasks that told of their entry: {sorted(found)}; shown: {(start.all + cell.all)[-2000:]}")
    return max(found.values()) - start.sent


def _failed(kernel: Kernel, way: str) -> None:
    """A run that fails, in start already or while the next cell waits."""
    cell = kernel.run(f"%tfcluster start main_fun {way}")
    if cell.status == "ok":
        cell = kernel.run("%tfcluster wait")
    if "RunFailed" not in cell.error:
        raise BenchError(f"a run that was to fail ended so: {cell.all[-2000:]}")


def imported(place: Workplace) -> float:
    """Seconds from starting two Pythons until the later one has TensorFlow imported."""
    began = time.time()
    command = [place.python, "-c", ALONE]
    both = [
        subprocess.Popen(
            command, env=place.env, cwd=place.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    times = []
    for process in both:
        out, err = process.communicate(timeout=DEADLINE)
        if process.returncode:
            raise BenchError(f"import tensorflow, keras: {err[-500:]}")
        times.append(float(out.split()[-1]))
    return max(times) - began


def _pid(place: Workplace, task: str) -> int:
    """The process of a task of the active run, which it printed."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = re.findall(r"pid (\d+)", place.call("logs", "--task", task))
        if found:
            return int(found[-1])
        time.sleep(0.05)
    raise BenchError(f"{task} printed no pid: {json.dumps(place.call('status'))[-500:]}")
