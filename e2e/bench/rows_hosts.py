"""A restart without a host that vanished, beside the time after which the engine itself gives the host up."""

from __future__ import annotations

from measure import Figure, Options, median, spread
from rows_yarn import go_samples
from workplace import Workplace

ROW = 21
# Seconds after which the engine itself gives a host up, by its defaults: spark.network.timeout, and
# yarn.nm.liveness-monitor.expiry-interval-ms.
ENGINES = {"spark": ("Spark", 120.0), "yarn": ("YARN", 600.0)}
BAR = 30.0


def hosts(place: Workplace, options: Options) -> list[Figure]:
    """Seconds from the verdict to the first task's entry on another host, on four hosts of namespaces."""
    options.say("hosts: Spark and Hadoop start")
    took = go_samples(place, "BenchmarkRestart", "./e2e/hosts", options.times(5, 2))
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
