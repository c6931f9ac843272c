"""How long stacks takes, and what it costs the steps of the program that is asked."""

from __future__ import annotations

import shutil
import time

from measure import Figure, Options, bootstrap, median, spread
from rows_steps import ONE_THREAD, PROGRAM, step_figures
from workplace import DEADLINE, BenchError, Kernel, Workplace

ROW = 19
BAR = 1.0  # seconds for the stacks of four tasks
STEP_BAR = 1.02  # lower end of the ratio of step times
TASKS = {
    "that wait": "import time\ntime.sleep(3600)",
    "of which one holds the GIL": "import ctypes, time, tfcluster\n"
    "(time.sleep if tfcluster.context().task_index else ctypes.PyDLL(None).sleep)(3600)",
}


def stacks(place: Workplace, options: Options) -> list[Figure]:
    """The stacks of four tasks, and pairs of runs with and without calls, turn about."""
    figures = []
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 4 --framework none")
        for what, program in TASKS.items():
            kernel.ok(f"%%tfcluster start\n{program}\n")
            seconds = [_seconds(kernel) for _ in range(options.times(20, 5))]
            options.say(f"stacks of four tasks {what}: {spread(seconds)}")
            kernel.ok("%tfcluster stop")
            holds = max(seconds) <= BAR
            figures.append(
                Figure(
                    ROW, f"stacks of 4 tasks {what}", "–", spread(seconds), "–", f"{BAR:.0f} s", holds, {"s": seconds}
                )
            )
        kernel.ok("%tfcluster shutdown")
        figures.append(_steps(place, kernel, options))
    return figures


def _seconds(kernel: Kernel) -> float:
    cell = kernel.ok("%tfcluster stacks")
    if "stacks of 4 tasks" not in cell.all:
        raise BenchError(f"not every task has stacks: {cell.all[-1000:]}")
    return cell.seconds


def _steps(place: Workplace, kernel: Kernel, options: Options) -> Figure:
    """Step times of runs that are asked all the time, beside those of others."""
    pairs, count = options.times(options.pairs, min(options.pairs, 4)), options.times(8000, 2000)
    shutil.copy(PROGRAM, place.work / PROGRAM.name)
    words = " ".join(f"--env {key}={value}" for key, value in ONE_THREAD.items())
    kernel.ok(f"%tfcluster reserve --workers 1 --idle 10m {words}")
    found: dict[str, list[float]] = {"quiet": [], "asked": []}
    calls = 0
    for n in range(pairs):
        for side in ("quiet", "asked") if n % 2 == 0 else ("asked", "quiet"):
            kernel.ok(f"%tfcluster start {PROGRAM.name} {count}")
            if side == "asked":
                calls += _ask_while_it_runs(kernel)
            cell = kernel.ok("%tfcluster wait")
            found[side].append(step_figures(cell.text, cell.all)["median"])
        now = {side: values[-1] * 1e3 for side, values in found.items()}
        options.say(
            f"pair {n + 1} of {pairs}: quiet {now['quiet']:.3f} ms, asked {now['asked']:.3f} ms, {calls} calls so far"
        )
    kernel.ok("%tfcluster shutdown")
    ratio, low, high = bootstrap([a / q for a, q in zip(found["asked"], found["quiet"], strict=True)])
    return Figure(
        ROW,
        f"step time during {calls} calls of stacks ({pairs} pairs)",
        f"without {median(found['quiet']) * 1e3:.3f} ms",
        f"{median(found['asked']) * 1e3:.3f} ms",
        f"× {ratio:.3f} [{low:.3f}, {high:.3f}]",
        f"lower end {STEP_BAR:.3f}",
        low <= STEP_BAR,
        {"seconds": found, "calls": calls, "ratio": ratio, "low": low, "high": high},
    )


def _ask_while_it_runs(kernel: Kernel) -> int:
    """Call stacks until the run is over; returns how often."""
    calls, end = 0, time.monotonic() + DEADLINE
    while True:
        cell = kernel.run("%tfcluster stacks")
        if cell.status != "ok" and "no run is active" in cell.all:
            return calls
        if cell.status != "ok" or time.monotonic() > end:
            raise BenchError(f"stacks during a run: {cell.all[-1000:]}")
        calls += 1
