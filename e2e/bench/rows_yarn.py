"""Three plain processes in containers of a real YARN, beside what was measured of TonY elsewhere."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

from measure import Figure, Options, median, spread
from workplace import DEADLINE, BenchError, Missing, Workplace

ROOT = pathlib.Path(__file__).parents[2]
# TonY 0.5.3 on Hadoop 3.3.6, two cores, quiet: from the client's start, from its submission; PSS of client, master
# and executors.
TONY = {"client": 8.77, "submit": 6.64, "pss": 559}


def submit(place: Workplace, options: Options) -> list[Figure]:
    """From a submission to three processes, and the memory of driver and agents."""
    options.say("YARN: Hadoop starts")
    said = go_samples(place, "BenchmarkSubmit", "./cluster/yarn", options.times(5, 2))
    return [figure for way, bar in (("unmanaged", 0.4), ("managed", 0.5)) for figure in rows(way, bar, said[way])]


def go_samples(place: Workplace, benchmark: str, package: str, times: int) -> dict[str, Any]:
    """Returns what a benchmark of Go prints as its samples; it needs Hadoop."""
    if not (ROOT / ".hadoop").exists():
        raise Missing("Hadoop's jars are missing (make hadoop)")
    if not shutil.which("go"):
        raise Missing("go is missing")
    caches = {  # the home of the workplace is empty
        name: subprocess.check_output(["go", "env", name], text=True).strip() for name in ("GOCACHE", "GOMODCACHE")
    }
    done = subprocess.run(
        ["go", "test", "-v", "-run", "^$", "-bench", benchmark, "-benchtime", f"{times}x", package],
        env={**place.env, **caches, "TFCLUSTER_TEST_PYTHON": place.python},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * DEADLINE,
    )
    lines = [line for line in done.stdout.splitlines() if "samples {" in line]
    if "skipped: " in done.stdout:
        raise Missing(done.stdout.partition("skipped: ")[2].splitlines()[0])
    if done.returncode or not lines:
        raise BenchError(f"{benchmark}: {(done.stdout + done.stderr).strip()[-1000:]}")
    said: dict[str, Any] = json.loads(lines[-1].partition("samples ")[2])
    return said


def rows(way: str, bar: float, said: dict[str, Any]) -> list[Figure]:
    """The figures of one way to run the ApplicationMaster."""
    since, first, pss = said["since"], median(said["first"]), said["pss"]
    return [
        Figure(
            7,
            f"YARN, {way}: submission → three processes run",
            f"TonY {TONY['submit']} s (quoted; from its client's start {TONY['client']} s)",
            f"{spread(since)}, in Hadoop's first minute {first:.2f} s; "
            f"from the driver's start {median(said['began']):.2f} s",
            f"÷ {TONY['submit']} s = {median(since) / TONY['submit']:.2g}",
            f"{bar:.2f} s",
            median(since) <= bar,
            {"seconds": said},
        ),
        Figure(
            7,
            f"YARN, {way}: PSS of driver and three agents",
            f"TonY {TONY['pss']} MB (quoted)",
            f"{pss:.0f} MB",
            f"÷ {TONY['pss']} MB = {pss / TONY['pss']:.2g}",
            "140 MB",
            pss <= 140,
        ),
    ]
