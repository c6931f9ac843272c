"""On which hosts Spark starts agents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfcluster import spark_placement


@pytest.mark.parametrize(
    ("n", "free", "placed", "pack", "hosts"),
    [
        (2, {"a": 2, "b": 2}, {}, False, ["a", "b"]),
        (4, {"a": 2, "b": 2}, {}, False, ["a", "b", "a", "b"]),
        (3, {"a": 1, "b": 2}, {}, False, ["b", "a", "b"]),
        (1, {"a": 1, "b": 1}, {"a": 1}, False, ["b"]),
        (1, {"a": 0, "b": 0}, {"a": 1, "b": 1}, False, [""]),
        (2, {}, {}, False, ["", ""]),
        (2, {"a": 1, "b": 2}, {}, True, ["b", "b"]),
        (1, {"a": 2, "b": 1}, {"b": 1}, True, ["b"]),
        (3, {"a": 2, "b": 2}, {}, True, ["a", "a", "b"]),
    ],
)
def test_prefer(n: int, free: dict[str, int], placed: dict[str, int], pack: bool, hosts: list[str]) -> None:
    """Agents spread over the hosts with free slots, or share the fewest."""
    assert spark_placement.prefer(n, free, placed, pack) == hosts


class Starting:
    """A new session whose executors register one after the other: a host's with the time, in seconds."""

    connect = False

    def __init__(self, comes: dict[str, float], conf: dict[str, str]) -> None:
        self.comes, self.set = comes, conf
        self.now = min(comes.values())
        self._sc = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: self))

    def conf(self, key: str = "", default: str = "") -> Any:
        """Returns a setting, or the object that the JVM calls the SparkConf."""
        return self.set.get(key, default) if key else SimpleNamespace(getTimeAsMs=lambda key, default: 3000)

    def executors(self) -> dict[str, int]:
        """Returns the hosts of the executors that have registered."""
        return {host: 1 for host, at in self.comes.items() if at <= self.now}

    def slots_each(self, gpus: int) -> int:
        """Returns the slots of an executor."""
        return 2

    def statusStore(self) -> Any:  # noqa: N802 - the names of Spark
        """Returns the executors as Spark lists them."""
        times = [at for at in self.comes.values() if at <= self.now]
        at = [SimpleNamespace(addTime=lambda t=t: SimpleNamespace(getTime=lambda: t * 1000)) for t in times]
        return SimpleNamespace(executorList=lambda active: SimpleNamespace(size=lambda: len(at), apply=lambda i: at[i]))

    def time(self) -> float:
        """Returns the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Waits."""
        self.now += seconds


@pytest.mark.parametrize(
    ("comes", "conf", "pack", "hosts", "waited"),
    [
        ({"a": 0, "b": 2.5}, {"spark.master": "yarn"}, False, ["a", "b"], 2.5),
        ({"a": 0, "b": 9}, {"spark.master": "yarn"}, False, ["a", "a"], 3),
        ({"a": 0, "b": 0.5}, {"spark.master": "spark://m:7077"}, False, ["a", "b"], 0.5),
        ({"a": 0, "b": 1.5}, {"spark.master": "spark://m:7077"}, False, ["a", "a"], 1),
        (
            {"a": 0},
            {"spark.master": "spark://m", "spark.cores.max": "2", "spark.executor.cores": "2"},
            False,
            ["a", "a"],
            0,
        ),
        ({"a": 0, "b": 2}, {"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}, False, ["a", "a"], 1),
        ({"a": 0, "b": 1}, {"spark.master": "yarn"}, True, ["a", "a"], 0),
        ({"a": 0}, {"spark.master": "local[2]"}, False, ["a", "a"], 0),
        ({"a": 0}, {"spark.master": "local-cluster[1,2,512]"}, False, ["a", "a"], 0),
    ],
)
def test_choose(
    comes: dict[str, float],
    conf: dict[str, str],
    pack: bool,
    hosts: list[str],
    waited: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Agents wait for a new session's executors rather than share a host, as long as others may come."""
    session = Starting({host: 1000 + at for host, at in comes.items()}, conf)
    monkeypatch.setattr(spark_placement, "time", session)
    order = {"agents": [{}, {}], "gpus": 0, "pack": pack}
    assert spark_placement.choose(session, order) == hosts
    assert session.now - 1000 == pytest.approx(waited, abs=0.1)
