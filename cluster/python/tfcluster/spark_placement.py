"""On which hosts Spark starts the agents of a launch: spread over them, or together on as few as possible."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tfcluster import spark_lost

_FOLLOW = 1.0  # seconds from the registration of an executor in which others may follow, if their number is unknown
_POLL = 0.05  # interval of checks of Spark's executors, in seconds


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


def choose(session: Any, order: Mapping[str, Any]) -> list[str]:
    """Returns the preferred host of each agent of an order, once Spark has the executors for it.

    The executors of a new session register one after the other. While others may follow, agents that would share a
    host wait, for spark.locality.wait at most.
    """
    asked, gpus = _asked(session), order["gpus"]
    limit = session._sc._jsc.sc().conf().getTimeAsMs("spark.locality.wait", "3s") / 1000
    if not asked:
        limit = min(limit, _FOLLOW)
    while True:
        executors = session.executors()
        n = sum(executors.values())
        free, placed = _counts(order, executors, session.slots_each(gpus) or session.most_tasks(gpus) // max(1, n))
        chosen = prefer(len(order["agents"]), free, placed, order.get("pack", False))
        apart = "" not in chosen and len(set(chosen)) == len(chosen) and not any(placed[host] for host in chosen)
        if apart or order.get("pack", False) or 0 < asked <= n or not 0 <= time.time() - _newest(session._sc) < limit:
            return chosen
        time.sleep(_POLL)


def _asked(session: Any) -> int:
    """Returns how many executors the settings of a session ask for; 0 if they leave it open."""
    master = session.conf("spark.master", "")
    if session.conf("spark.dynamicAllocation.enabled", "false") == "true":
        return 0
    if cluster := re.match(r"local-cluster\[(\d+)", master):
        return int(cluster[1])
    if master.startswith("local"):
        return 1
    if master.startswith("spark"):
        cores = int(session.conf("spark.executor.cores", "0"))
        return int(session.conf("spark.cores.max", "0")) // cores if cores else 0
    return int(session.conf("spark.executor.instances", "2"))


def _newest(sc: Any) -> float:
    """Returns when the newest executor registered, in seconds since 1970."""
    executors = sc._jsc.sc().statusStore().executorList(True)
    return max((executors.apply(i).addTime().getTime() / 1000 for i in range(executors.size())), default=0.0)


def _counts(
    order: Mapping[str, Any], executors: Mapping[str, int], slots: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns, for each host, the slots that no agent of the cluster has, and the agents that it has.

    executors has the number of executors of each host, slots those of each executor.
    """
    free, placed = {}, {}
    agents = order.get("placed", ())
    known = {host: spark_lost.names(host) for host in {*agents, *executors}}  # each is looked up once
    for host, n in executors.items():
        placed[host] = sum(spark_lost.same(known[host], known[on]) for on in agents)
        free[host] = n * max(1, slots) - placed[host]
    return free, placed


def located(sc: Any, lines: Sequence[str], hosts: Sequence[str]) -> Any:
    """Returns a JavaRDD with a partition for each line, whose task prefers a host for spark.locality.wait."""
    jsc, jvm = sc._jsc, sc._jvm
    if not any(hosts):
        return jsc.parallelize(lines, len(lines))
    seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    pairs = [jvm.scala.Tuple2(line, seq([host] if host else [])) for line, host in zip(lines, hosts, strict=True)]
    return jsc.sc().makeRDD(seq(pairs), jsc.emptyRDD().classTag()).toJavaRDD()


def in_python(sc: Any, lines: Any) -> Any:
    """Returns a JavaRDD of strings as an RDD of Python."""
    from pyspark import RDD
    from pyspark.serializers import UTF8Deserializer

    return RDD(lines, sc, UTF8Deserializer())
