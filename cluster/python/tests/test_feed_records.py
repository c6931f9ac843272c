"""Records of an RDD as record batches, without Spark."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from tfcluster import feed_arrow, feed_columns, feed_records, feed_source

Point = collections.namedtuple("Point", "x label")


@pytest.mark.parametrize(
    ("records", "names", "dtypes", "shapes"),
    [
        ([1, 2], [""], ["int64"], [()]),
        ([np.float32(1), np.float32(2)], [""], ["float32"], [()]),
        ([(1, "a", [0.5, 1.5]), (2, "b", [1, 2])], ["_1", "_2", "_3"], ["int64", "object", "float64"], [(), (), (2,)]),
        ([Point([1.0], True), Point([2.0], False)], ["x", "label"], ["float64", "bool"], [(1,), ()]),
        ([{"id": 1, "x": b"12"}, {"x": b"34", "id": 2, "more": 3}], ["id", "x"], ["int64", "object"], [(), ()]),
        ([np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")], [""], ["float32"], [(2, 3)]),
        ([(np.zeros(4, "u1"), 1.0), (np.ones(4, "u1"), 2.0)], ["_1", "_2"], ["uint8", "float64"], [(4,), ()]),
    ],
)
def test_forms(records: list[Any], names: list[str], dtypes: list[str], shapes: list[Any]) -> None:
    """What columns a record has, and what the program gets of them."""
    form = feed_records.form_of(records[0])
    made = list(feed_records.batches(iter(records * 800), form, 0))
    assert [b.num_rows for b in made] == [1000, 600] and list(form.names) == names
    for batch in made:
        found = feed_columns.arrays(next(feed_source.checked({}, 0, [batch])), {})
        assert list(found) == names
        assert [(v.dtype.name, v.shape[1:]) for v in found.values()] == list(zip(dtypes, shapes, strict=True))
    assert feed_arrow.is_list(made[0].schema.types[0]) == bool(shapes[0])


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (1, "text", "column '', partition 3, row 1: 'text' is text, 1 before it is int; in the first"),
        (
            (1, 2),
            (1,),
            "partition 3, row 1 is a tuple of length 1, but the first record of DATA is a tuple of length 2",
        ),
        (
            (1, 2),
            [1, 2],
            "partition 3, row 1 is a value of type list, but the first record of DATA is a tuple of length 2",
        ),
        ({"a": 1}, {"b": 1}, "partition 3, row 1 has no 'a', which the first record of DATA has"),
        ({"a": 1}, 1, "partition 3, row 1 is of type int, but the first record of DATA is a dict"),
        (np.zeros(2), np.zeros((2, 2)), "column '', partition 3, row 1: an array of shape (2, 2), an array of"),
        (
            np.zeros(2, "i8"),
            np.full(2, 1j),
            "column '', partition 3, row 1: an array of complex128: cast it to a number",
        ),
        (1, 2.5, "column '', partition 3, row 1: 2.5 is double; in the first record of DATA it is int64"),
        (np.float32(1), 1e300, "column '', partition 3, row 1: 1e+300 is double"),
        (np.zeros(2, "i1"), np.full(2, 300), "column '', partition 3, row 1: 300 is int64"),
        (np.zeros(2), np.ma.masked_array([1.0, 2.0], [0, 1]), "column '', partition 3, row 1: NULL"),
    ],
)
def test_records_of_another_form(first: Any, second: Any, says: str) -> None:
    """The partition and the row are named."""
    with pytest.raises(feed_source.Refused) as refused:
        list(feed_records.batches([first, second], feed_records.form_of(first), 3))
    assert says in str(refused.value)


@pytest.mark.parametrize("second", [np.zeros(3), [1.0], None])
def test_ragged(second: Any) -> None:
    """Arrays of other lengths and None are refused as those of a DataFrame."""
    first: Any = np.zeros(2) if isinstance(second, np.ndarray) else [1.0, 2.0]
    made = feed_records.batches([first, second], feed_records.form_of(first), 3)
    with pytest.raises(feed_source.Refused, match="column '', partition 3, row 1: "):
        list(feed_source.checked({}, 3, made))


@pytest.mark.parametrize("record", [object(), (1, object()), {"a": np.array([object()])}])
def test_records_that_cannot_be_fed(record: Any) -> None:
    """The type is named."""
    with pytest.raises(ValueError, match=r"^a value of type (object|ndarray)$"):
        feed_records.form_of(record)
