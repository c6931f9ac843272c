"""Executors of Spark on a lost host."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("host", "killed"),
    [
        ("node-1", ["0", "1"]),
        ("node-1.example.org", ["0", "1"]),
        ("10.9.8.7", ["2"]),
        ("node-3", []),
    ],
)
def test_replace(host: str, killed: list[str]) -> None:
    """Every executor of the host is replaced, whatever name Spark has for it; the driver is not."""
    sc = Executors(
        ("driver", "node-1:1"), ("0", "node-1:2"), ("1", "node-1.example.org:3"), ("2", "10.9.8.7:4"), ("3", "node-2:5")
    )
    assert spark_lost.replace(sc, host) == len(killed)
    assert sc.killed == killed


@pytest.mark.parametrize(
    ("connect", "refuses", "says"),
    [
        (False, False, ""),
        (
            False,
            True,
            "gives them up after spark.network.timeout = 77s (Spark does not replace its executor 0 on node-1)",
        ),
        (True, False, "gives them up after spark.network.timeout = 77s"),
    ],
)
def test_avoid(connect: bool, refuses: bool, says: str) -> None:
    """Where Spark does not replace them, the launch says what it waits for, and until when."""
    session = Session.__new__(Session)
    session.connect, session._most = connect, 2
    session._sc = Executors(("0", "node-1:2"), refuses=refuses)
    session.conf = lambda key, default: "77s"  # type: ignore[method-assign]
    said = session.avoid("node-1")
    assert said.endswith(says) and bool(said) == bool(says)
    assert session._most == (1 if not says else 2)


def test_other_hosts() -> None:
    """Hosts are compared by any of their names."""
    session = Session.__new__(Session)
    session.connect = False
    session._executors = lambda: {"node-1.example.org": 1, "node-2": 2, "10.9.8.7": 1}  # type: ignore[method-assign]
    assert session.other_hosts("node-1") == ["10.9.8.7", "node-2"]
    session.connect = True
    assert session.other_hosts("node-1") == []
