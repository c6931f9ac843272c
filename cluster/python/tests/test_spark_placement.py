"""On which hosts Spark starts agents."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tfcluster import spark_calls, spark_lost, spark_placement


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
        return dict(Counter(name[0] for name, at in self.comes.items() if at <= self.now))

    def slots_each(self, gpus: int) -> int:
        """Returns the slots of an executor."""
        return int(self.set.get("slots", "2"))

    def statusStore(self) -> Any:  # noqa: N802 - the names of Spark
        """Returns the executors as Spark lists them."""
        times = [at for at in self.comes.values() if at <= self.now]
        at = [SimpleNamespace(addTime=lambda t=t: SimpleNamespace(getTime=lambda: t * 1000)) for t in times]
        return SimpleNamespace(executorList=lambda active: SimpleNamespace(size=lambda: len(at), apply=lambda i: at[i]))

    def time(self) -> float:
        """Returns the time."""
        return self.now


@pytest.mark.parametrize(
    ("comes", "conf", "pack", "hosts", "waited"),
    [
        ({"a": 0, "b": 2.5}, {"spark.master": "yarn"}, False, ["a", "b"], 2.5),
        ({"a": 0, "b": 2.5}, {"spark.master": "yarn", "spark.executor.instances": ""}, False, ["a", "b"], 2.5),
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
        ({"a1": 0, "b1": 0, "a2": 1}, {"spark.executor.instances": "3", "slots": "1"}, True, ["a", "a"], 1),
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
    monkeypatch.setattr(spark_lost, "names", lambda host: {host})  # no lookup
    order = {"agents": [{}, {}], "gpus": 0, "pack": pack}
    while (found := spark_placement.choose(session, order))[1]:
        session.now += 0.05
    assert found[0] == hosts
    assert session.now - 1000 == pytest.approx(waited, abs=0.1)


class Hours:
    """The time, which passes only while it is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Returns the time in seconds."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Waits."""
        self.now += seconds


def test_launches_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are replaced at the same time are not placed by where the others were before."""
    places = spark_placement.Places()
    places.are({"0": "d", "1": "d"})
    monkeypatch.setattr(
        spark_placement, "choose", lambda session, order: (["d" if order["placed"] == ["c"] else "c"], 0.0)
    )
    orders: list[dict[str, Any]] = [{"agents": [{"executor": name}]} for name in ("0", "1")]
    for order in orders:
        places.prefer(SimpleNamespace(connect=False), order, spark_calls.Launch(), lambda: False, lambda _: None)
    assert [order["hosts"] for order in orders] == [["c"], ["d"]]


@pytest.mark.parametrize(("gives_up", "waited"), [(False, 3.0), (True, 0.1)])
def test_waits_for_executors(gives_up: bool, waited: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch waits for other executors as long as was known first, and until it is given up."""
    clock, launch, texts = Hours(), spark_calls.Launch(), []

    def choose(session: Any, order: Any) -> tuple[list[str], float]:
        texts.append(launch.waits)
        return ["a"], 3.0  # another one comes again and again

    monkeypatch.setattr(spark_placement, "time", clock)
    monkeypatch.setattr(spark_placement, "choose", choose)
    order: dict[str, Any] = {"agents": [{"executor": "0"}]}
    session = SimpleNamespace(connect=False)
    over = spark_placement.Places().prefer(session, order, launch, lambda: gives_up and clock.now >= waited, clock.wait)
    assert (over, order["hosts"], launch.waits) == (gives_up, ["a"], "")
    assert clock.now == pytest.approx(waited, abs=0.06)
    assert "other executors" in texts[1]
