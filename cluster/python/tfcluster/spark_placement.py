"""On which hosts Spark starts the agents of a launch: spread over them, or together on as few as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfcluster import spark_lost


def prefer(n: int, free: Mapping[str, int], placed: Mapping[str, int], pack: bool) -> list[str]:
    """Returns the preferred host of each of n agents; "" for one that finds no free slot.

    free has the slots of each host that no agent of the cluster has, placed the agents that each host has.
    """
    left, there = dict(free), dict(placed)
    chosen = []
    for _ in range(n):
        hosts = [host for host in sorted(left) if left[host] > 0]
        if not hosts:
            chosen.append("")
            continue
        order = [(-there.get(h, 0) if pack else there.get(h, 0), -left[h], h) for h in hosts]
        host = min(order)[2]
        chosen.append(host)
        left[host] -= 1
        there[host] = there.get(host, 0) + 1
    return chosen


def hosts(order: Mapping[str, Any], executors: Mapping[str, int], slots: int) -> list[str]:
    """Returns the preferred host of each agent of an order: see spark_host.Host.do_launch.

    executors has the number of executors of each host, slots those of each executor; 0 if that is unknown.
    """
    free, placed = {}, {}
    agents = order.get("placed", ())
    known = {host: spark_lost.names(host) for host in {*agents, *executors}}  # each is looked up once
    for host, n in executors.items():
        placed[host] = sum(spark_lost.same(known[host], known[on]) for on in agents)
        free[host] = n * max(1, slots) - placed[host]
    return prefer(len(order["agents"]), free, placed, order.get("pack", False))


def located(jsc: Any, jvm: Any, lines: list[str], hosts: list[str]) -> Any:
    """Returns a JavaRDD with a partition for each line, whose task prefers a host for spark.locality.wait."""
    if not any(hosts):
        return jsc.parallelize(lines, len(lines))
    seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    pairs = [jvm.scala.Tuple2(line, seq([host] if host else [])) for line, host in zip(lines, hosts, strict=True)]
    return jsc.sc().makeRDD(seq(pairs), jsc.emptyRDD().classTag()).toJavaRDD()
