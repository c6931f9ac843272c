"""Row 6: the time of a training step, beside the same program started by a shell."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import socket
import subprocess

from measure import Figure, Options, bootstrap, median
from workplace import DEADLINE, BenchError, Kernel, Workplace

PROGRAM = pathlib.Path(__file__).with_name("step_program.py")
ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
FIGURES = re.compile(r"steps (\{.*\})")


def steps(place: Workplace, options: Options) -> list[Figure]:
    """Pairs of runs, the order within a pair turned each time; the ratio of a pair is one sample."""
    pairs = options.times(options.pairs, min(options.pairs, 4))
    count = options.times(1000, 300)
    shutil.copy(PROGRAM, place.work / PROGRAM.name)
    found: dict[str, list[dict[str, float]]] = {"shell": [], "tfcluster": []}
    with place.kernel("tfcluster") as kernel:
        words = " ".join(f"--env {key}={value}" for key, value in ONE_THREAD.items())
        kernel.ok(f"%tfcluster reserve --workers 1 --idle 10m {words}")
        for n in range(pairs):
            sides = ["shell", "tfcluster"] if n % 2 == 0 else ["tfcluster", "shell"]
            for side in sides:
                found[side].append(_shell(place, count) if side == "shell" else _ours(kernel, count))
            now = {side: found[side][-1]["median"] * 1e3 for side in sides}
            options.say(f"pair {n + 1} of {pairs}: shell {now['shell']:.3f} ms, tfcluster {now['tfcluster']:.3f} ms")
        kernel.ok("%tfcluster shutdown")
    return [
        _compared("step time, median", "median", 1e3, "ms", found),
        _compared("step time, mean", "mean", 1e3, "ms", found),
        _compared("CPU a step", "cpu", 1e3, "ms", found, barred=False),
    ]


def _compared(
    what: str, key: str, scale: float, unit: str, found: dict[str, list[dict[str, float]]], *, barred: bool = True
) -> Figure:
    theirs = [run[key] for run in found["shell"]]
    ours = [run[key] for run in found["tfcluster"]]
    ratio, low, high = bootstrap([mine / other for mine, other in zip(ours, theirs, strict=True)])
    return Figure(
        6,
        f"{what} ({len(ours)} pairs)",
        f"shell {median(theirs) * scale:.3f} {unit}",
        f"{median(ours) * scale:.3f} {unit}",
        f"× {ratio:.3f} [{low:.3f}, {high:.3f}]",
        "lower end 1.020" if barred else "–",
        low <= 1.02 if barred else None,
        {"seconds": {"shell": theirs, "tfcluster": ours}, "ratio": ratio, "low": low, "high": high},
    )


def _shell(place: Workplace, count: int) -> dict[str, float]:
    """The program by a shell, its address in TF_CONFIG."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {"cluster": {"worker": [f"127.0.0.1:{port}"]}, "task": {"type": "worker", "index": 0}}
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@"', "sh", place.python, PROGRAM.name, str(count)],
        env={**place.env, **ONE_THREAD, "TF_CONFIG": json.dumps(config)},
        cwd=place.work,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    return step_figures(done.stdout, done.stderr)


def _ours(kernel: Kernel, count: int) -> dict[str, float]:
    """The program on the held cluster."""
    cell = kernel.ok(f"%tfcluster start --wait {PROGRAM.name} {count}")
    return step_figures(cell.text, cell.all)


def step_figures(out: str, everything: str) -> dict[str, float]:
    """What PROGRAM printed of its steps."""
    line = FIGURES.search(out)
    if line is None:
        raise BenchError(f"the program told no step time: {everything[-1500:]}")
    return json.loads(line[1])
