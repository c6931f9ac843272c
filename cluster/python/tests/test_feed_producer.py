"""A producer of a feed: what it skips, and to which holder it goes."""

from __future__ import annotations

import pathlib
import socket
import tempfile
import types
from collections.abc import Callable, Iterator

import pytest

from tfcluster import feed_notebook, feed_source

pa = pytest.importorskip("pyarrow")


def batches(*lengths: int) -> Iterator[object]:
    """Record batches with consecutive numbers."""
    begin = 0
    for n in lengths:
        yield pa.RecordBatch.from_pydict({"x": list(range(begin, begin + n))})
        begin += n


@pytest.mark.parametrize("skip", [0, 1, 3, 4, 9])
def test_skip(skip: int) -> None:
    """An attempt delivers what is behind the records of earlier ones."""
    stream = batches(3, 1, 5)
    got = [x for b in feed_source._after(skip, next(stream), stream) for x in b.column("x").to_pylist()]
    assert got == list(range(skip, 9))


def test_fewer_than_before() -> None:
    """A partition that has become shorter than what was delivered is refused."""
    stream = batches(3, 1)
    with pytest.raises(feed_source.Refused, match="6 records fewer"):
        list(feed_source._after(10, next(stream), stream))


class Frame:
    """A DataFrame whose job does something else."""

    columns = ("id",)
    schema = types.SimpleNamespace(fields=[])
    sparkSession = types.SimpleNamespace(addTag=lambda tag: None, removeTag=lambda tag: None)  # noqa: N815

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job

    def mapInArrow(self, stage: object, schema: str) -> Frame:  # noqa: N802
        """The stage is not run."""
        return self

    def collect(self) -> list[object]:
        """Does the job."""
        self._job()
        return []


def test_feeds_overlap() -> None:
    """A feed that was given up ends late: the functions of the next one travel whole nevertheless."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="missing: pyspark")
    whole = []

    def job() -> None:
        feed_notebook.SparkFrame(Frame(lambda: None), {}).read({}, 0)
        whole.append({"tfcluster.feed_link", "tfcluster.feed_source"} <= cloudpickle.list_registry_pickle_by_value())

    feed_notebook.SparkFrame(Frame(job), {}).read({}, 0)
    assert whole == [True]


def test_holders() -> None:
    """Partitions take turns among the tasks on this host; without one they go to the driver's relay."""
    with tempfile.TemporaryDirectory(prefix="tf") as folder:  # short: it holds sockets
        listening = {}
        for name in ("a", "b", "relay"):
            listening[name] = socket.socket(socket.AF_UNIX)
            listening[name].bind(str(pathlib.Path(folder, name)))
            listening[name].listen()
            listening[name].settimeout(5)
        order = {"holders": [{"task": "" if n == "relay" else n, "socket": f"{folder}/{n}"} for n in listening]}

        def reached(partition: int, **more: object) -> str:
            link = feed_source._connect({**order, **more}, partition)
            name = pathlib.Path(link._socket.getpeername()).name
            listening[name].accept()[0].close()
            link.close()
            return name

        assert [reached(n) for n in range(3)] == ["a", "b", "a"]
        assert reached(1, first=True) == "a"
        for name in ("a", "b"):
            pathlib.Path(folder, name).unlink()
        assert [reached(n) for n in range(3)] == ["relay"] * 3
        pathlib.Path(folder, "relay").unlink()
        with pytest.raises(feed_source.Refused, match="no executor of the cluster is on this host"):
            feed_source._connect(order, 0)
        for each in listening.values():
            each.close()
