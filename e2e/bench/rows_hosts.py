"""A restart without a host that vanished, beside the time after which the engine itself gives the host up."""

from __future__ import annotations

import json
import subprocess

from measure import Figure, Options, median, spread
from rows_yarn import ROOT, go_environment, needs_hadoop
from workplace import DEADLINE, BenchError, Missing, Workplace

ROW = 21
# Seconds after which the engine itself gives a host up, by its defaults: spark.network.timeout, and
# yarn.nm.liveness-monitor.expiry-interval-ms.
ENGINES = {"spark": ("Spark", 120.0), "yarn": ("YARN", 600.0)}
BAR = 30.0


def hosts(place: Workplace, options: Options) -> list[Figure]:
    """Seconds from the verdict to the first task's entry on another host, on four hosts of namespaces."""
    needs_hadoop()
    options.say("hosts: Spark and Hadoop start")
    command = ["go", "test", "-v", "-run", "^$", "-bench", "BenchmarkRestart", "-benchtime", f"{options.times(5, 2)}x"]
    done = subprocess.run(
        [*command, "./e2e/hosts"],
        env=go_environment(place),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * DEADLINE,
    )
    lines = [line for line in done.stdout.splitlines() if "samples {" in line]
    if "skipped: " in done.stdout:
        raise Missing(done.stdout.partition("skipped: ")[2].splitlines()[0])
    if done.returncode or not lines:
        raise BenchError(f"on several hosts: {(done.stdout + done.stderr).strip()[-1000:]}")
    took = json.loads(lines[-1].partition("samples ")[2])
    return [
        Figure(
            ROW,
            f"a host vanishes: verdict → first task elsewhere, on {name}",
            f"{name}'s own timeout {timeout:.0f} s (its default)",
            spread(took[engine], digits=1),
            f"÷ {timeout:.0f} s = {median(took[engine]) / timeout:.2g}",
            f"{BAR:.0f} s",
            max(took[engine]) <= BAR,
            {"seconds": took[engine]},
        )
        for engine, (name, timeout) in ENGINES.items()
    ]
