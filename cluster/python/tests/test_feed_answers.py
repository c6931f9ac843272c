"""Results of inference: what a program may give, and how the records of a stage carry it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tfcluster import feed_answers, feed_predict
from tfcluster.feed_reader import Piece


def wrong(results: int, records: int) -> RuntimeError:
    return RuntimeError(f"{results} for {records}")


@pytest.mark.parametrize(
    ("values", "types", "rows"),
    [
        (np.arange(4, dtype=np.float32).reshape(2, 2), ["list<item: float>"], [[[0.0, 1.0], [2.0, 3.0]]]),
        (np.arange(4, dtype=np.uint8).reshape(2, 2, 1), ["list<item: list<item: int16>>"], [[[[0], [1]], [[2], [3]]]]),
        (np.ones(2, dtype=np.float16), ["float"], [[1.0, 1.0]]),
        ([1, 2.5], ["double"], [[1.0, 2.5]]),
        (["a", "bc"], ["string"], [["a", "bc"]]),
        ([[1, 2], []], ["list<item: int64>"], [[[1, 2], []]]),
        ([{"n": 1, "s": b"x"}, {"n": 2, "s": b"y"}], ["int64", "binary"], [[1, 2], [b"x", b"y"]]),
        ({"a": [True, False], "b": [[1], [2]]}, ["bool", "list<item: int64>"], [[True, False], [[1], [2]]]),
    ],
)
def test_values_and_types(values: Any, types: list[str], rows: list[Any]) -> None:
    """Arrays, dicts of arrays and lists of rows, on their way through a stage of Spark."""
    batch = feed_answers.batch_of(values, wrong)
    packed = feed_predict.packed(batch)
    for column in (packed, pa.concat_arrays([packed, packed]).slice(batch.num_rows)):
        columns = [feed_predict.spark_column(c) for c in feed_predict.unpacked(column, batch.schema)]
        assert [str(c.type) for c in columns] == types
        assert [c.to_pylist() for c in columns] == rows
    read = pa.ipc.read_schema(batch.schema.serialize())
    for values_of, field, expected in zip(batch.columns, read, rows, strict=True):
        assert [v.tolist() if hasattr(v, "tolist") else v for v in feed_predict.array_of(values_of, field)] == expected


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (3.5, "gave one float as prediction"),
        (["a", None], "gave None"),
        ({}, "an empty dict of results"),
        ({"a": [1], "b": [1, 2]}, "2 for 1"),
        ([{"a": 1}, {"b": 1}], "different names"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "datetime64"),
    ],
)
def test_refused(values: Any, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        feed_answers.batch_of(values, wrong)


class Written(feed_answers.Answers):
    """Answers that are looked at instead of being written to shared memory."""

    def __init__(self, *pieces: Piece) -> None:
        super().__init__(SimpleNamespace(pieces=feed_answers.deque(pieces)), "worker:1")
        self.written: list[tuple[int, int, list[Any]]] = []

    def _write(self, feed: int, piece: int, begin: int, results: Any) -> None:
        self.written.append((piece, begin, results.column(0).to_pylist()))


def test_results_reach_their_pieces() -> None:
    """Batches end anywhere in pieces: each piece gets the results of its records, once all are there."""
    answers = Written(Piece(1, 7, 2, 5), Piece(1, 8, 0, 1), Piece(1, 9, 0, 4))
    for batch in ([0, 1], [2, 3, 4], [5, 6, 7]):
        answers.handed(len(batch))
        answers.give(batch)
    assert answers.written == [(7, 2, [0, 1, 2]), (8, 0, [3]), (9, 0, [4, 5, 6, 7])]
    answers.end()


def test_whole_batches_only() -> None:
    """Results are of one batch, or of several whole ones."""
    answers = Written(Piece(1, 1, 0, 250))
    answers.handed(100)
    answers.handed(150)
    for n, records in ((99, 100), (101, 100), (200, 250), (0, 100)):
        with pytest.raises(
            RuntimeError, match=rf"main_fun gave {n} results for {records} records \(worker:1, batch 1\)"
        ):
            answers.give([1] * n)
    answers.give(np.ones(250))
    with pytest.raises(RuntimeError, match=r"gave 5 results for 0 records \(worker:1, batch 3\)"):
        answers.give([1] * 5)
    answers.give([])


def test_types_stay() -> None:
    """Later results have the types of the first ones, or can be given them."""
    answers = Written(Piece(1, 1, 0, 4))
    for values in (np.ones(1), [2]):
        answers.handed(1)
        answers.give(values)
    answers.handed(2)
    with pytest.raises(RuntimeError, match="after double"):
        answers.give(["a", "b"])
    with pytest.raises(RuntimeError, match="named other; before they were prediction"):
        answers.give({"other": [1, 2]})


def test_a_program_that_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come no more before results are given: the thread that gives them must not wait for records."""
    monkeypatch.setattr(feed_answers, "PATIENCE", 0.01)
    answers = Written(Piece(1, 1, 0, 10))
    answers.handed(5)
    with pytest.raises(RuntimeError, match="gave no results within 0 s for the 5 records"):
        answers.await_some()
    answers.give([1] * 5)
    answers.await_some()
    answers.handed(5)
    monkeypatch.setattr(feed_answers, "PATIENCE", 60)
    with pytest.raises(RuntimeError, match="before you read the next one"):
        answers.await_some()


def test_lists_of_results_keep_their_types() -> None:
    """A list of NumPy's values or of arrays has their type; what has an array is taken for it."""

    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.ones(2, "float32")

    for values, kind in (
        ([np.float32(1), np.float32(2)], "float"),
        (list(np.zeros((3, 4), "uint8")), "fixed_size_list<item: uint8>[4]"),
        ([Tensor(), Tensor()], "fixed_size_list<item: float>[2]"),
        ([np.zeros(2), np.zeros(3)], "list<item: double>"),
    ):
        assert str(feed_answers.batch_of(values, wrong).column(0).type) == kind
