"""docs/feed.md: each line of its table of types."""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from test_feed_tables import fed

from tfcluster.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs" / "feed.md"


def lines() -> Iterator[tuple[str, str, str]]:
    """What is in DATA, an example, and what the program gets; without those that need Spark."""
    found, table = "", False
    for line in DOCS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        table = line.startswith("|") and (table or cells[0] == "in DATA")
        if not table or len(cells) != 3 or cells[0] in ("in DATA", "---"):
            continue
        found = cells[0] or found
        if found.startswith("Spark"):
            return
        yield found, cells[1].strip("`"), cells[2]


@pytest.mark.parametrize(("example", "says"), [(example, says) for _, example, says in lines()])
def test_types(example: str, says: str) -> None:
    """The example is fed as the table says, or refused with what it says."""
    value = eval(example, {"np": np, "pd": pd, "pa": pa, "decimal": decimal})
    if says.startswith("refused: "):
        with pytest.raises(UsageError) as refused:
            fed(value)
        for words in says.removeprefix("refused: ").replace("`", "").split(" and "):
            assert words in str(refused.value)
        return
    got: Any = next(iter((fed(value) or {}).values()))
    dtype, _, shape = says.strip("`]").partition("[")
    assert (got.dtype.name, list(got.shape[1:])) == (dtype, [int(n) for n in re.findall(r"\d+", shape)])


def test_the_table_has_lines() -> None:
    """The table is found."""
    assert len(list(lines())) > 30
