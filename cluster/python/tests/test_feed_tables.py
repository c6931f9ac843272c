"""Tables of all libraries: each value arrives as it is, or its column is named before anything is fed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
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
