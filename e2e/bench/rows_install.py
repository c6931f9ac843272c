"""Row install: from pip install to the first line of a task, in a fresh environment, with packages in pip's cache."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from measure import Figure, Options, median, spread
from workplace import BenchError, Missing, Workplace

ROOT = pathlib.Path(__file__).parents[2]
FRAMEWORK = "tensorflow"
LINE = "the first line"
DEADLINE = 1200  # seconds of a command


def install(place: Workplace, options: Options) -> list[Figure]:
    """pip install of the wheel with TensorFlow beside TensorFlow alone, turn about, then a run of one task."""
    hatchling = ROOT / ".venv-wheel" / "bin" / "hatchling"
    if not hatchling.exists():
        raise Missing(".venv-wheel, which builds the wheel: make prepare")
    dist = place.folder / "dist"
    _run(
        [hatchling, "build", "-t", "wheel", "-d", dist], ROOT, os.environ | {"TFCLUSTER_WHEEL_ARCH": os.uname().machine}
    )
    requirement = f"{next(dist.glob('*.whl'))}[{FRAMEWORK}]"
    alone: list[float] = []
    ours: list[float] = []
    total: list[float] = []
    for n in range(options.times(3, 1) + 1):
        options.say(f"install: round {n}" if n else "install: fill pip's cache")
        seconds = {}
        for what in (FRAMEWORK, requirement):
            python = _environment(place)
            began = time.monotonic()
            _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", what], place.folder, place.env)
            seconds[what] = time.monotonic() - began
        _first_line(place, python)
        if n:
            alone.append(seconds[FRAMEWORK])
            ours.append(seconds[requirement])
            total.append(time.monotonic() - began)
    return [
        Figure(
            16,
            "pip install with a warm cache",
            f"{FRAMEWORK} alone {spread(alone)}",
            spread(ours),
            f"x {median(ours) / median(alone):.2f}",
            "–",
            None,
            {"alone": alone, "ours": ours},
        ),
        Figure(
            16, "pip install to the end of a task with one line", "–", spread(total), "–", "–", None, {"ours": total}
        ),
    ]


def _environment(place: Workplace) -> pathlib.Path:
    """Make an empty environment in place of the one before; its interpreter."""
    prefix = place.folder / "environment"
    shutil.rmtree(prefix, ignore_errors=True)
    _run([sys.executable, "-m", "venv", prefix], place.folder, place.env)
    return prefix / "bin" / "python"


def _first_line(place: Workplace, python: pathlib.Path) -> None:
    """Run a task that writes one line."""
    program = place.work / "first.py"
    program.write_text(f"import sys; print({LINE!r}, file=sys.stderr)\n")
    said = _run([python.parent / "tfcluster", "run", "--workers", "1", program], place.work, place.env)
    if LINE not in said:
        raise BenchError(f"the task's line did not arrive: {said}")


def _run(command: Sequence[object], folder: pathlib.Path, env: Mapping[str, str]) -> str:
    """Run a command to its end, with a deadline; what it wrote."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
    )
    if done.returncode:
        raise BenchError(f"{command[0]}: exit code {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout
