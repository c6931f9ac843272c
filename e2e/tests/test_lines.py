"""What a flood of lines leaves in a cell: its first and last lines, however many and however long they are."""

from __future__ import annotations

import json
import re

import pytest
from conftest import Notebook

pytestmark = pytest.mark.engines

MOST = 1_000_000  # bytes in a cell, as the notebook's file holds them


def size(text: str) -> int:
    """The bytes of a text in a notebook's file."""
    return len(json.dumps(text, ensure_ascii=False).encode())


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


@pytest.mark.parametrize("how", ["start", "start then wait"])
def test_many_lines(notebook: Notebook, how: str) -> None:
    """40 tasks write 25,000 lines each as fast as they can: all are shown or counted."""
    notebook.ok("%tfcluster reserve --workers 40 --framework none --worker-command 'sh flood.sh' --idle 60s")
    (notebook.cwd / "flood.sh").write_text("seq -f 'line %.0f of so many' 25000\n")
    if how == "start":
        cell = notebook.ok("%tfcluster start --wait")
    else:
        notebook.ok("%tfcluster start")
        cell = notebook.ok("%tfcluster wait")
    assert size(cell.text) <= MOST
    assert re.search(r"…\s[\d,]+ (earlier )?lines (in between|since the last cell): %tfcluster logs", cell.text), (
        cell.text[:2000]
    )
    if how == "start":
        merged = sum(int(n) for n in re.findall(r"^\[[^]]* ×(\d+)\] line", cell.text, re.MULTILINE))
        alone = len(re.findall(r"^\[worker:\d+\] line", cell.text, re.MULTILINE))
        between = sum(
            int(n.replace(",", "")) for n in re.findall(r"^… ([\d,]+) lines in between", cell.text, re.MULTILINE)
        )
        assert alone + merged + between == 40 * 25_000
    assert "1,000,000 lines" in "".join(cell.plain[-1:]) or "line 25000" in cell.text


LONG = r"""
head -c 3000000 /dev/urandom; echo
head -c 20000000 /dev/zero; echo
for i in 1 2 3; do head -c 100000000 /dev/zero | tr '\0' x; echo; done
echo the end
"""


def test_long_lines(notebook: Notebook) -> None:
    """Lines of 100 MB, and of NULs, are shortened and say by how much; the next line is whole."""
    notebook.ok("%tfcluster reserve --workers 1 --framework none --worker-command 'sh long.sh' --idle 60s")
    (notebook.cwd / "long.sh").write_text(LONG)
    cell = notebook.ok("%tfcluster start --wait")
    assert size(cell.text) <= MOST
    assert "[worker:0] the end\n" in cell.text
    assert re.search(r"more: tfcluster logs -c \S+ --run 1 --task worker:0", cell.text)
    assert size(notebook.ok("%tfcluster logs").text) <= MOST
