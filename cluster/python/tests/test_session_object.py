"""A SparkSession or SparkContext that a Python call gives, instead of a variable's name."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import pytest

import tfcluster
from tfcluster import engine_session, gate, objects, spark_host, spark_session
from tfcluster.objects import Objects


class Java:
    """The JVM's context."""

    stopped = False

    def sc(self) -> Java:
        """Return itself."""
        return self

    def isStopped(self) -> bool:  # noqa: N802
        """Return whether it was stopped."""
        return self.stopped


class SparkContext:
    """A classic context."""

    _jvm = None

    def __init__(self) -> None:
        self._jsc: Java | None = Java()
        self._conf = {"spark.driver.host": "127.0.0.1"}


class SparkSession:
    """A classic session."""

    _jvm = None

    def __init__(self, context: SparkContext | None = None) -> None:
        self.sparkContext = context or SparkContext()


SparkContext.__module__, SparkSession.__module__ = "pyspark.core.context", "pyspark.sql.session"


class Own(SparkSession):
    """A class of a user."""


def test_reserve_gives_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is found by its name during the call; the name stays its own, and no other object has it."""
    said: list[tuple[list[str], dict[str, Any]]] = []

    def command(request: Mapping[str, Any], how: gate.Answer, show: Any) -> None:
        name = next(word for word in request["argv"] if word.startswith("--session=")).partition("=")[2]
        said.append((request["argv"], how("spark_session", {"name": name, "asked": True})))

    monkeypatch.setattr(gate, "command", command)
    first, second = SparkSession(), Own()
    for session in (first, second, first):
        tfcluster.reserve(backend="spark", session=session)
    names = [told["identity"] for _, told in said]
    assert names[0] == names[2] != names[1] and all(name.isidentifier() for name in names)
    assert [argv for argv, _ in said] == [["reserve", "--backend=spark", f"--session={name}"] for name in names]
    assert said[0][1] == {"found": True, "host": "127.0.0.1", "unusable": "", "identity": names[0]}
    # By the name of a variable the same object is known, too.
    named = Objects({"mine": first})("spark_session", {"name": "mine", "asked": True})
    assert named["identity"] == names[0]
    assert objects.name_session("mine") == ("mine", {})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (3, "an int"),
        (True, "a bool"),
        (types.SimpleNamespace(), "a SimpleNamespace"),
        (SparkSession, "the class Spark"),
    ],
)
def test_what_is_no_session(given: Any, what: str) -> None:
    """The error says what it is and what to give, before anything starts."""
    with pytest.raises(tfcluster.UsageError, match=rf"got {what}.*: give a SparkSession, a SparkContext, or the name"):
        tfcluster.reserve(session=given)


def test_a_stopped_session() -> None:
    """Nothing is asked of the engine."""
    session, context = SparkSession(), SparkContext()
    session.sparkContext._jsc = context._jsc = None
    for given, words in ((session, "the SparkSession was stopped"), (context, "the SparkContext was stopped")):
        with pytest.raises(tfcluster.UsageError, match=f"{words}: make it again and give the new one"):
            tfcluster.reserve(session=given)


def test_the_clusters_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the object that was lent at the cluster's socket, whatever the notebook's variables hold now."""
    session = SparkSession()
    monkeypatch.setattr(
        spark_host, "_borrowed", {"/one": spark_host.Host(spark_session.Session(session), "/one", patience=1)}
    )
    assert engine_session._lent("one", "/one") is session
    with pytest.raises(tfcluster.ClusterError, match="cluster two is on the SparkSession of another process"):
        engine_session._lent("two", "/two")
