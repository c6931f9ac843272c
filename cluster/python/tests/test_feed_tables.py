"""Tables of all libraries: each value arrives as it is, or its column is named before anything is fed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tables

from tfcluster import feed_columns, feed_notebook, feed_source
from tfcluster.errors import UsageError

_ROOM = 1 << 15  # bytes of a slot
_SEED = int(os.environ.get("TFCLUSTER_SEED", "34"))


def fed(value: Any) -> dict[str, Any] | None:
    """What a program gets of a value: described, packed into slots and unpacked; None where it has no record."""
    source = feed_notebook.describe(value, {"data": "x"})
    assert isinstance(source, feed_notebook.Parts)
    batches = source._taken(0) if isinstance(source, feed_notebook.Batches) else source._batches(0, source.total)
    parts = []
    for batch in feed_source.checked({}, 0, batches):
        for part in feed_source._parts(batch, _ROOM):
            slot = bytearray(_ROOM)
            size = feed_source._put(part, memoryview(slot))
            got = pa.ipc.open_stream(pa.py_buffer(bytes(slot[:size]))).read_next_batch()
            parts.append(feed_columns.arrays(got, {}))
    return feed_columns.concatenated(parts) if parts else None


def test_tables_at_random() -> None:
    """2,000 tables: equal bit for bit, or refused before the first record with the name of the column."""
    refused = 0
    for seed in range(_SEED, _SEED + 2000):
        case = tables.case(seed)
        try:
            got = fed(case.value)
        except UsageError as e:
            assert case.spoilt is not None, f"seed {seed}: {e}"
            named = f"column {case.spoilt!r}" if not isinstance(case.value, np.ndarray) else ""
            assert named in str(e) or case.spoilt == "", f"seed {seed}: {e}"
            refused += 1
            continue
        except feed_source.Refused as e:
            pytest.fail(f"seed {seed}: refused only when it was fed: {e}") if not _in_pieces(case) else None
            assert case.spoilt is not None, f"seed {seed}: {e}"
            refused += 1
            continue
        assert case.spoilt is None, f"seed {seed}: {case.spoilt!r} was fed"
        if got is None:
            assert not any(len(values) for values in case.columns.values()), f"seed {seed}"
            continue
        assert list(got) == list(case.columns), f"seed {seed}"
        for name, want in case.columns.items():
            assert tables.equal(got[name], want), f"seed {seed}, column {name!r}: {got[name]!r} for {want!r}"
    assert refused > 200


def _in_pieces(case: tables.Case) -> bool:
    """Whether it is an iterator, of which only the first batch is there when it is described."""
    return hasattr(case.value, "__next__")


MASKED = np.ma.array([1.5, 2.5], mask=[1, 0])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"x": list(MASKED)}, "row 0: NULL; fill or drop it"),
        ({"x": MASKED}, "row 0: NULL; fill or drop it (filled, compressed)"),
        (pa.table({"x": [1, None]}), "row 1: NULL; fill or drop it (fill_null, drop_null)"),
        (pd.DataFrame({"x": [None, "a"]}), "row 0: NULL; fill or drop it (fillna, dropna)"),
        ({"x": pd.Series(list(MASKED), dtype=object)}, "row 0: NULL"),
        ({"x": [[MASKED, MASKED]]}, "row 0: NULL"),
        ({"x": [1.5, True]}, "row 1: True is bool, 1.5 before it is float"),
        ({"x": [[1.5, 2.5], [1.5, True]]}, "row 1: True is bool"),
        ({"x": [1, np.bool_(True)]}, "row 1: True is bool"),
        (pa.table({"x": pa.array([b"0" * 16], pa.uuid())}), "give its storage"),
        (pd.DataFrame({"x": [np.array([1j]), np.array([2j])]}), "row 0: an array of complex128: cast it"),
        (pd.DataFrame([[1, 2]], columns=["", ""]), "two columns ''"),
        ({"x": pa.table({"a": [1]})}, "give an array"),
        (
            iter([pa.table({"x": pa.array([b"ab"], pa.binary(2))}), pa.table({"x": pa.array([b"abc"], pa.binary(3))})]),
            "row 0: it is fixed_size_binary[3]",
        ),
    ],
)
def test_refused(value: Any, says: str) -> None:
    """Values that libraries convert silently are refused with their row."""
    with pytest.raises((UsageError, feed_source.Refused)) as refused:
        fed(value)
    assert says in str(refused.value)


def test_an_array_that_is_filled_again() -> None:
    """Each batch of an iterator is as it was when it was given, also beside the results of inference."""
    buffer = np.zeros(3)

    def batches() -> Any:
        for n in range(3):
            buffer[:] = n
            yield buffer

    source = feed_notebook.describe(batches(), {})
    assert isinstance(source, feed_notebook.Batches)
    source.taken = []
    made = list(source._taken(0))
    assert [b.column(0).to_pylist() for b in made] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
    assert [batch.tolist() for _, batch in source.taken] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]


def test_what_is_encoded_has_its_own_size() -> None:
    """A partition is as large as its values, not as its codes."""
    source = feed_notebook.describe(pd.DataFrame({"x": ["a" * 1000] * 100}).astype("category"), {})
    assert isinstance(source, feed_notebook.Parts) and source._batch < (100 << 20) // 1000
