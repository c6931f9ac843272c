"""The feed without a cluster: what can be fed, how records are cut, and what becomes of their memory."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tfcluster import feed_columns, feed_notebook, feed_source
from tfcluster.channel import Channel
from tfcluster.context import Context
from tfcluster.errors import UsageError
from tfcluster.feed import DataFeed
from tfcluster.feed_reader import EpochOver


class Fed:
    """A reader that was given what it reads; a number begins another feed."""

    def __init__(self, parts: list[Any], **plan: Any) -> None:
        self._parts = parts
        self.plan = plan
        self.over = self.short = False
        self.feed = 1
        self.unread = 0

    def begin(self) -> None:
        """Something has been fed already."""

    def read(self, *, even: bool, batch: int) -> None:
        """Any way is well."""

    def next(self) -> Any:
        """The next part."""
        while self._parts and isinstance(self._parts[0], int):
            self.feed = self._parts.pop(0)
        if self._parts and not self.over:
            return self._parts.pop(0)
        self.over = True
        return None

    def leave(self, unread: int = 0) -> None:
        """No further part."""
        self.over = True
        self.unread = unread


def of(*sizes: int | str, train_mode: bool = True, **plan: Any) -> DataFeed:
    """A feed whose parts have so many records; "|" ends an epoch."""
    parts: list[Any] = []
    at = epoch = 0
    for size in sizes:
        if isinstance(size, str):
            parts.append(EpochOver(epoch, at, 0, at, at))
            epoch, at = epoch + 1, 0
        else:
            parts.append({"x": np.arange(at, at + size), "y": np.arange(at, at + size) * 2.0})
            at += size
    reader: Any = Fed(parts, **plan)
    return DataFeed(lambda: reader, train_mode=train_mode)


EPOCHS = (3, 4, "|", 8, "|", 2, "|")
"""Without train_mode batches of four end where epochs do: after 7, 8 and 2 records."""


@pytest.mark.parametrize("asks", [True, False])
def test_batches_of_one_epoch(asks: bool) -> None:
    """Without train_mode a batch is of one epoch, and every epoch is read, whether should_stop is asked or not."""
    feed, batches = of(*EPOCHS, train_mode=False), []
    while not (asks and feed.should_stop()) and (batch := feed.next_batch(4)):
        batches.append([int(x) for x, _ in batch])
    assert batches == [[0, 1, 2, 3], [4, 5, 6], [0, 1, 2, 3], [4, 5, 6, 7], [0, 1]]
    feed, arrays = of(*EPOCHS, train_mode=False), []
    while (found := feed.next_numpy(4)) is not None:
        arrays.append(found["x"].tolist())
    assert arrays == batches


def test_next_batch() -> None:
    """Batches do not end where parts or epochs do; the last one may be short."""
    feed = of(3, 4, "|", 2, "|")
    batches = []
    while not feed.should_stop():
        batches.append(feed.next_batch(4))
    assert [[x for x, _ in b] for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 0], [1]]
    assert batches[0][1] == (1, 2.0) and feed.next_batch(4) == []


def test_input_mapping() -> None:
    """TensorFlowOnSpark's form: lists by the program's names, columns sorted."""
    reader: Any = Fed([{"y": np.arange(2), "x": np.arange(2.0)}])
    feed = DataFeed(lambda: reader, input_mapping={"y": "label", "x": "image"})
    assert feed.next_batch(5) == {"image": [0.0, 1.0], "label": [0, 1]}
    assert feed.next_batch(5) == {"image": [], "label": []}


def test_one_array() -> None:
    """A record of an array is a row."""
    reader: Any = Fed([{"": np.arange(6).reshape(3, 2)}], unnamed=True)
    feed = DataFeed(lambda: reader)
    assert [row.tolist() for row in feed.next_batch(2)] == [[0, 1], [2, 3]]
    assert feed.next_numpy(2).tolist() == [[4, 5]] and feed.next_numpy(2) is None


def test_epochs_of_an_iterable() -> None:
    """Each iteration is one epoch; the arrays are the program's own; one iteration too many says so."""
    feed = of(3, 2, "|", 5, "|", epochs=2, label="y")
    batches = feed.as_iterable(2)
    for _ in range(2):
        read = list(batches)
        assert [len(x) for x, _ in read] == [2, 2, 1] and all(x.flags.writeable for x, _ in read)
        assert np.concatenate([y for _, y in read]).tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(RuntimeError, match="it had 2 epochs"):
        list(batches)


def test_the_context() -> None:
    """ctx has one epoch of training until the program asks for data, and then what was asked of the notebook."""
    ctx = Context({"job_name": "worker"}, Channel(None))
    assert (ctx.mode, ctx.epochs, ctx.end_feed({"loss": 1})) == ("train", 1, {})
    ctx._feed = of(3, "|", mode="evaluate", epochs=7)
    assert (ctx.mode, ctx.epochs) == ("evaluate", 7)


@pytest.mark.parametrize(
    ("returned", "evaluated", "reported", "want"),
    [
        ({"mean": np.float32(2), "text": "x"}, {"loss": 1.0}, {"acc": 3.0}, {"mean": 2.0}),
        (None, {"loss": 1.0}, {"acc": 3.0}, {"loss": 1.0}),
        ([1], {}, {"acc": 3.0}, {"acc": 3.0}),
        (None, {}, {}, {}),
    ],
)
def test_what_an_evaluation_found(returned: Any, evaluated: Any, reported: Any, want: dict[str, float]) -> None:
    """What main_fun returns, else the last model.evaluate, else the last report; with the number of records."""
    channel = Channel(None)
    ctx = Context({"job_name": "worker"}, channel)
    ctx._feed = of(3, "|", mode="evaluate")
    ctx._feed._reader = ctx._feed._connect()
    ctx._feed._reader.total = 3
    ctx._feed.next_batch(5)
    channel.evaluated, channel.last_report = evaluated, reported
    assert ctx.end_feed(returned) == {"evaluated": want, "records": 3}


def test_another_form() -> None:
    """A batch does not mix records of two sources with different columns, types or shapes."""
    end = EpochOver(0, 3, 0, 3, 3)
    reader: Any = Fed([{"": np.arange(3)}, end, 2, {"x": np.arange(2), "y": np.arange(2)}, end])
    feed = DataFeed(lambda: reader)
    assert [feed.next_batch(4) for _ in range(3)] == [[0, 1, 2], [(0, 0), (1, 1)], []]
    for other in (np.zeros((2, 1)), np.zeros(2, dtype="int32")):
        reader = Fed([{"x": np.zeros(3)}, 2, {"x": other}])
        feed = DataFeed(lambda reader=reader: reader)
        assert [feed.next_numpy(4)["x"].shape for _ in range(2)] == [(3,), other.shape]
        reader = Fed([{"y": np.zeros(3), "x": np.zeros(3)}, {"y": np.zeros(2), "x": other}])
        feed = DataFeed(lambda reader=reader: reader)
        with pytest.raises(
            RuntimeError, match="column 'x' of DATA is .* here and float64 before: all records must have"
        ):
            feed.next_numpy(4)


def test_features_and_label() -> None:
    """One feature is an array, several are a dict, with a label and without."""
    parts = dict.fromkeys(("", "x", "y", "z"), np.arange(2))

    def batch(*names: str, **plan: Any) -> Any:
        reader: Any = Fed([{name: parts[name] for name in names}, EpochOver(0, 2, 0, 2, 2)], **plan)
        return next(iter(DataFeed(lambda: reader).as_iterable(2)))

    assert batch("x", label="").tolist() == batch("", label="").tolist() == [0, 1]
    assert list(batch("x", "y")) == ["x", "y"]
    features, label = batch("x", "y", label="y")
    assert features.tolist() == label.tolist() == [0, 1]
    features, label = batch("x", "y", "z", label="y")
    assert list(features) == ["x", "z"] and label.tolist() == [0, 1]


def test_one_way_of_reading() -> None:
    """Two ways would share the records."""
    feed = of(3, "|")
    feed.next_batch(1)
    with pytest.raises(RuntimeError, match="it cannot be read by as_iterable"):
        list(feed.as_iterable(1))


def test_shuffle_and_steps() -> None:
    """Each record once, in another order; --steps ends the reading."""
    feed = of(50, 50, "|", shuffle=30)
    read = [x for batch in feed.as_iterable(7) for x in batch["x"].tolist()]
    assert sorted(read) == list(range(100)) and read != sorted(read)
    feed = of(50, 50, "|", steps=3)
    assert [len(b["x"]) for b in feed.as_iterable(8)] == [8, 8, 8]
    assert feed._reader is not None and feed._reader.over and feed._reader.unread == 26  # of the first part


def test_drop_remainder() -> None:
    """A batch that is not full is left out."""
    assert [len(b["x"]) for b in of(5, "|", drop_remainder=True).as_iterable(2)] == [2, 2]


@pytest.mark.parametrize(
    ("batch", "name", "dtype", "shape"),
    [
        (pa.record_batch({"a": pa.array([True, False])}), "a", "bool", (2,)),
        (pa.record_batch({"a": pa.array([1, 2], pa.int8())}), "a", "int8", (2,)),
        (pa.record_batch({"a": pa.array([1, 2], pa.float64())}), "a", "float64", (2,)),
        (pa.record_batch({"a": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float32()))}), "a", "float32", (2, 3)),
        (
            pa.record_batch({"a": pa.array([[[1], [2]], [[3], [4]]], pa.list_(pa.list_(pa.int32())))}),
            "a",
            "int32",
            (2, 2, 1),
        ),
        (pa.record_batch({"a": pa.array([b"ab", b"cd"])}), "a", "object", (2,)),
        (pa.record_batch({"a": pa.array(["ä", "b"])}), "a", "object", (2,)),
    ],
)
def test_types(batch: Any, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    """Columns of Spark's types as arrays, also of a slice."""
    values = feed_columns.arrays(batch, {})[name]
    assert (values.dtype, values.shape) == (np.dtype(dtype), shape)
    part = feed_columns.arrays(batch.slice(1, 1), {})[name]
    assert part.shape == (1, *shape[1:]) and (part[0] == values[1]).all() if len(shape) > 1 else part[0] == values[1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(6)])
def test_binary(kind: Any) -> None:
    """Bytes of equal length are an array without a copy, also of a slice."""
    plan = {"binary": feed_notebook.binaries(["a:uint8[3,2]"])}
    batch = pa.record_batch({"a": pa.array([bytes(range(n, n + 6)) for n in range(3)], kind)}).slice(1)
    values = feed_columns.arrays(batch, plan)["a"]
    assert values.shape == (2, 3, 2) and values[0].ravel().tolist() == [1, 2, 3, 4, 5, 6]


def test_cast() -> None:
    """--cast changes floating-point numbers alone."""
    found = feed_columns.arrays(pa.record_batch({"a": [1.0], "b": [1]}), {"cast": "float32"})
    assert found["a"].dtype == np.float32 and found["b"].dtype == np.int64


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": pa.array([1, None])}, "column 'a', partition 3, row 1: NULL"),
        ({"a": pa.array([[1, 2], [3]])}, "column 'a', partition 3, row 1: an array of 1 values, 2 in the rows before"),
        ({"a": pa.array([[1, None]])}, "column 'a', partition 3, row 0: NULL"),
        ({"b": pa.array([b"abc", b"ab"])}, "row 1: 2 bytes, but --binary b:uint8[3] has 3"),
    ],
)
def test_records_that_cannot_be_fed(columns: dict[str, Any], says: str) -> None:
    """The column, the partition and the row are named."""
    order = {"binary": feed_notebook.binaries(["b:uint8[3]"])}
    with pytest.raises(feed_source.Refused) as refused:
        list(feed_source.checked(order, 3, [pa.record_batch(columns)]))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("text", "it is a str: give a Spark or pandas DataFrame"),
        (
            pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}),
            'column \'t\' is of datetime64[ns]: cast it, as in x["t"].astype("int64")',
        ),
        (pa.table({"d": pa.array([1], pa.date32())}), "column 'd' is date32"),
        ({"a": np.arange(2), "b": np.arange(3)}, "a has 2, b has 3"),
        ({}, "there is no array"),
        (np.float32(1), "it is one value"),
        (np.array([1j]), "it is of complex128"),
        (iter([]), "an iterator without a batch"),
    ],
)
def test_data_that_cannot_be_fed(data: Any, says: str) -> None:
    """What it is, and what to do."""
    with pytest.raises(UsageError) as refused:
        feed_notebook.describe(data, {})
    assert says in str(refused.value)


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what to install where, before a task waits for records."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="has no pyarrow, .* -m pip install pyarrow, then run the cell again"):
        feed_notebook.describe(np.arange(2), {})


def test_columns_that_are_chosen() -> None:
    """--columns and --label; a name that is not there is refused with those that are."""
    frame = pd.DataFrame({"a": [1], "b": [2], "y": [3]})
    assert feed_notebook.describe(frame, {"columns": ["a"], "label": "y"}).columns == ("a", "y")
    with pytest.raises(UsageError, match="--columns c: there is no such column; choose from a, b, y"):
        feed_notebook.describe(frame, {"columns": ["c"]})
    with pytest.raises(UsageError, match="--binary a"):
        feed_notebook.binaries(["a"])


def test_parts_fit_a_slot() -> None:
    """A batch is cut to the size of a slot; a record that fits none is refused with what helps."""
    batch = pa.record_batch({"a": pa.array(np.zeros(10_000))})
    parts = list(feed_source._parts(batch, 4096))
    assert sum(p.num_rows for p in parts) == 10_000 and max(p.num_rows for p in parts) < 512
    assert all(feed_source._put(p, memoryview(bytearray(4096))) <= 4096 for p in parts)
    with pytest.raises(feed_source.Refused, match="reserve with --feed-memory"):
        list(feed_source._parts(pa.record_batch({"a": [b"x" * 5000]}), 4096))


def test_records_that_were_delivered() -> None:
    """Another attempt skips them."""
    batches = [pa.record_batch({"a": range(n, n + 3)}) for n in (0, 3, 6)]
    for skip, first in ((0, 0), (2, 2), (3, 3), (7, 7)):
        rest = iter(batches[1:])
        read = [v for b in feed_source._after(skip, batches[0], rest) for v in b.column(0).to_pylist()]
        assert read == list(range(first, 9))
    assert feed_source._digest(batches[0]) != feed_source._digest(batches[1])
    assert feed_source._digest(batches[0].slice(1)) == feed_source._digest(pa.record_batch({"a": [1, 2]}))
