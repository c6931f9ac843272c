"""Executors of Spark on a lost host."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tfcluster import spark_lost
from tfcluster.spark_session import Session


class Executors:
    """The executors of a SparkContext: killed has the IDs of those that it was asked to replace."""

    def __init__(self, *executors: tuple[str, str], refuses: bool = False) -> None:
        self._executors = executors
        self._refuses = refuses
        self.killed: list[str] = []
        self._jsc = SimpleNamespace(sc=lambda: self)

    def statusStore(self) -> Any:  # noqa: N802 - the names of Spark
        return SimpleNamespace(executorList=lambda active: self)

    def size(self) -> int:
        return len(self._executors)

    def apply(self, i: int) -> Any:
        name, on = self._executors[i]
        return SimpleNamespace(id=lambda: name, hostPort=lambda: on)

    def killAndReplaceExecutor(self, name: str) -> bool:  # noqa: N802
        self.killed.append(name)
        return not self._refuses


def session(sc: Executors, connect: bool = False) -> Session:
    """A session with these executors, of which there were two."""
    made = Session.__new__(Session)
    made.connect, made._most, made._replaced, made._sc = connect, 2, set(), sc
    made._avoiding = threading.Lock()
    made.conf = lambda key, default: "77s"  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize(
    ("host", "killed"),
    [
        ("node-1", ["0", "1"]),
        ("node-1.example.org", ["0", "1"]),
        ("10.9.8.7", ["2"]),
        ("node-1.example.com", ["0"]),
    ],
)
def test_avoid(host: str, killed: list[str]) -> None:
    """Every executor of the host is replaced, once, whatever name Spark has for it; the driver is not."""
    sc = Executors(
        ("driver", "node-1:1"), ("0", "node-1:2"), ("1", "node-1.example.org:3"), ("2", "10.9.8.7:4"), ("3", "node-2:5")
    )
    lost = session(sc)
    for _ in range(2):  # Spark lists them until they are gone
        assert lost.avoid(host) == ""
        assert sc.killed == killed
        assert lost._most == 2 - len(killed)


def test_no_name() -> None:
    """What is no host's name is compared as it is."""
    assert spark_lost.names("a" * 64 + ".x") == {"a" * 64 + ".x"}
    assert spark_lost.names("a..b") == {"a..b"}


@pytest.mark.parametrize(
    ("host", "connect", "refuses", "says"),
    [
        (
            "node-1",
            False,
            True,
            "spark.network.timeout = 77s (Spark does not replace its executor 0 on node-1)",
        ),
        ("node-1", True, False, "may choose them: it gives them up after spark.network.timeout = 77s"),
        (
            "node-3",
            False,
            False,
            "no executor on a host of the name node-3; if it counts some there as alive, it ",
        ),
    ],
)
def test_cannot_avoid(host: str, connect: bool, refuses: bool, says: str) -> None:
    """Where Spark does not replace them, the launch says what it waits for, and until when."""
    lost = session(Executors(("0", "node-1:2"), refuses=refuses), connect)
    assert says in lost.avoid(host)
    assert lost._most == 2


def test_other_hosts() -> None:
    """Hosts are compared by any of their names."""
    some = session(Executors())
    some.executors = lambda: {"node-1.example.org": 1, "node-2": 2, "10.9.8.7": 1}  # type: ignore[method-assign]
    assert some.other_hosts("node-1") == ["10.9.8.7", "node-2"]
    some.conf = lambda key, default: "local[2]"  # type: ignore[method-assign]
    assert some.other_hosts("node-1") == []
    some.connect = True
    assert some.other_hosts("node-1") == []
