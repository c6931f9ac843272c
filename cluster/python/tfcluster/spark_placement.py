"""On which hosts Spark starts the agents of a launch: spread over them, or together on as few as possible."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfcluster import spark_lost
from tfcluster.spark_calls import Launch

_FOLLOW = 1.0  # seconds from the registration of an executor in which others may follow, if their number is unknown
_POLL = 0.05  # interval of checks of Spark's executors, in seconds
_SPREADS = "waits for Spark's other executors, so that the tasks need not share a host"


class Places:
    """The hosts of a cluster's agents, preferred or known. Launches side by side see one another's choice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, str] = {}  # by executor; guarded by _lock

    def prefer(
        self,
        session: Any,
        order: dict[str, Any],
        launch: Launch,
        given_up: Callable[[], bool],
        wait: Callable[[float], Any],
    ) -> bool:
        """Sets order["hosts"], the preferred host of each agent; returns True if the launch was given up.

        It waits for executors that may come, for as long as the first look at Spark allows.
        """
        names = [agent["executor"] for agent in order["agents"]]
        until: float | None = None
        while True:
            with self._lock:
                for name in names:
                    self._hosts.pop(name, None)
                order["placed"] = [host for host in self._hosts.values() if host]
                order["hosts"], more = ([""] * len(names), 0.0) if session.connect else choose(session, order)
                until = time.monotonic() + more if until is None else until
                over = given_up()
                if over or more == 0 or time.monotonic() >= until:
                    self._hosts.update(zip(names, order["hosts"], strict=True))
                    if launch.waits == _SPREADS:
                        launch.waits = ""
                    return over
            launch.waits = _SPREADS
            wait(_POLL)

    def are(self, hosts: Mapping[str, str]) -> None:
        """Notes the hosts of agents that were started."""
        with self._lock:
            self._hosts.update(hosts)


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


def choose(session: Any, order: Mapping[str, Any]) -> tuple[list[str], float]:
    """Returns the preferred host of each agent of an order, and for how many seconds other executors may come.

    The executors of a new session register one after the other. Only where agents would share a host, or with pack
    would not, is it worth to wait for others: until Spark has as many as its settings ask for, or if they leave that
    open for a moment after the newest.
    """
    executors, asked, gpus = session.executors(), _asked(session), order["gpus"]
    n = sum(executors.values())
    free, placed = _counts(order, executors, session.slots_each(gpus) or session.most_tasks(gpus) // max(1, n))
    pack = order.get("pack", False)
    chosen = prefer(len(order["agents"]), free, placed, pack)
    together = len({*chosen, *(host for host in placed if placed[host])}) == 1
    apart = len(set(chosen)) == len(chosen) and not any(placed.get(host) for host in chosen)
    if "" not in chosen and (together if pack else apart) or 0 < asked <= n:
        return chosen, 0.0
    limit = session._sc._jsc.sc().conf().getTimeAsMs("spark.locality.wait", "3s") / 1000
    age = time.time() - _newest(session._sc)
    return chosen, max(0.0, (limit if asked else min(limit, _FOLLOW)) - age) if age >= 0 else 0.0


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
        cores = int(session.conf("spark.executor.cores", "") or 0)
        return int(session.conf("spark.cores.max", "") or 0) // cores if cores else 0
    return int(session.conf("spark.executor.instances", "") or 2)


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


def in_python(sc: Any, hosts: Sequence[str], located_there: bool) -> Any:
    """Returns an RDD of Python with a partition for each host, whose task prefers it if located_there is True.

    A JVM that runs no program for the notebook may make no located RDD for it, either.
    """
    from pyspark import RDD
    from pyspark.serializers import UTF8Deserializer

    if not located_there:
        return sc.parallelize(range(len(hosts)), len(hosts))
    return RDD(located(sc, ["agent"] * len(hosts), hosts), sc, UTF8Deserializer())
