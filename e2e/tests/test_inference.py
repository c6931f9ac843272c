"""inference DATA: one result for each record, joined with the data in its order, as the same kind of object."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Notebook

RESERVE = "%tfcluster reserve --backend local --workers 2 --no-zygote --framework none"
DATA = "import numpy as np, pandas as pd, pyarrow as pa\n"
BATCHES = """
def main_fun(args, ctx):
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        batch = feed.next_batch(100)
        feed.batch_results([2 * (r[0] if isinstance(r, tuple) else r) for r in batch])
    return ctx.mode
"""
ARRAYS = """
def main_fun(args, ctx):
    feed = ctx.get_data_feed()
    for batch in feed.as_iterable(100):
        x = batch["x"] if isinstance(batch, dict) else batch
        feed.results({"double": 2 * x, "pair": np.stack([x, -x], axis=1)})
"""


@pytest.fixture(scope="module")
def local(kernel: Notebook) -> Iterator[Notebook]:
    """A notebook with two workers of this machine, for all tests."""
    kernel.enter(kernel.cwd)
    kernel.ok(RESERVE + "\n" + DATA)
    yield kernel
    kernel.leave()


def infer(notebook: Notebook, data: str, options: str = "", program: str = BATCHES) -> None:
    """Runs inference over an expression; the value is `out`."""
    notebook.ok(program + f"\ndata = {data}")
    notebook.ok("%tfcluster start main_fun")
    notebook.ok(f"out = %tfcluster inference data {options}")


@pytest.mark.parametrize("rows", [0, 1, 100, 100_003])
def test_array(local: Notebook, rows: int) -> None:
    """An array: an array of the results, in the order of the records; whatever the number of records."""
    infer(local, f"np.arange({rows})")
    cell = local.ok("type(out).__name__, len(out), bool((out == 2 * data).all())")
    assert cell.result == f"('ndarray', {rows}, True)", cell.all


@pytest.mark.engines
def test_dict(local: Notebook) -> None:
    """A dict of arrays: its arrays and those of the results, by name, with their shapes."""
    infer(local, "{'x': np.arange(1007.0), 'img': np.zeros((1007, 2, 2))}", program="import numpy as np\n" + ARRAYS)
    cell = local.ok(
        "print({k: v.shape for k, v in out.items()})\n"
        "bool((out['double'] == 2 * data['x']).all()), bool((out['pair'][:, 1] == -data['x']).all())"
    )
    assert cell.text == "{'x': (1007,), 'img': (1007, 2, 2), 'double': (1007,), 'pair': (1007, 2)}\n", cell.all
    assert cell.result == "(True, True)", cell.all


@pytest.mark.engines
def test_pandas(local: Notebook, tmp_path: object) -> None:
    """A pandas DataFrame keeps its index; --keep chooses columns that need not be fed; -o names the value."""
    infer(
        local,
        "pd.DataFrame({'x': range(1001), 'when': pd.Timestamp('2020-01-01')}, index=range(7, 1008))",
        "--columns x --keep when -o named",
    )
    cell = local.ok("out.columns.tolist(), int(out.index[0]), (out.prediction == 2 * data.x).all(), named is out")
    assert cell.result == "(['when', 'prediction'], 7, np.True_, True)", cell.all
    assert local.ok("list(data.columns)").result == "['x', 'when']"


@pytest.mark.engines
def test_arrow(local: Notebook) -> None:
    """An Arrow table; the value of a bare cell is in Out."""
    local.ok(BATCHES + "\ndata = pa.table({'x': range(777), 'name': ['a'] * 777})")
    local.ok("%tfcluster start main_fun")
    cell = local.ok("%tfcluster inference data --output found.parquet")
    assert "found.parquet" in cell.result, cell.all
    cell = local.ok("t = pa.parquet.read_table(_) if hasattr(pa, 'parquet') else None\nt.column_names, t.num_rows")
    assert cell.result == "(['x', 'name', 'prediction'], 777)", cell.all
    local.ok("%tfcluster start main_fun")
    assert "exists already" in local.fails("%tfcluster inference data --output found.parquet").error
    local.ok("out = %tfcluster inference data --keep name")
    cell = local.ok("out.column_names, out['prediction'].to_pylist() == [2 * x for x in range(777)]")
    assert cell.result == "(['name', 'prediction'], True)", cell.all


@pytest.mark.engines
def test_iterator(local: Notebook) -> None:
    """An iterator of batches: a list of batches, in the order of the iterator."""
    infer(local, "iter([{'x': np.arange(n)} for n in (5, 0, 250, 1)])")
    assert local.ok("[len(b['prediction']) for b in out]").result == "[5, 0, 250, 1]"
    assert local.ok("bool((out[2]['prediction'] == 2 * np.arange(250)).all())").result == "True"


@pytest.mark.engines
def test_python(local: Notebook) -> None:
    """The verb as a method; results as dicts of each record."""
    local.ok("import tfcluster\nc = tfcluster.attach()")
    local.ok(BATCHES.replace("2 * (r[0] if isinstance(r, tuple) else r)", "{'a': str(r[1]), 'b': [1] * (r[0] % 3)}"))
    local.ok("c.start(main_fun)\nframe = pd.DataFrame({'x': range(11), 'y': 1.5})")
    local.ok("out = c.inference(frame, keep=['x'])")
    cell = local.ok("out.columns.tolist(), out.a.tolist()[0], out.b.tolist()[4:6]")
    assert cell.result == "(['x', 'a', 'b'], '1.5', [[1], [1, 1]])", cell.all


@pytest.mark.engines
def test_wrong_number(local: Notebook) -> None:
    """Too few, too many and missing results are errors with the numbers."""
    for said, give in {
        "99 results for 100 records (worker:": "batch[:99]",
        "101 results for 100 records (worker:": "[*batch, 1]",
    }.items():
        local.ok(BATCHES.replace("[2 * (r[0] if isinstance(r, tuple) else r) for r in batch]", give))
        local.ok("data = np.arange(1000)")
        local.ok("%tfcluster start main_fun")
        cell = local.fails("%tfcluster inference data")
        assert cell.ename == "RunFailed" and said in cell.error, cell.all
    patience = "import tfcluster.feed_answers as a; a.PATIENCE = 1; str"
    local.ok(BATCHES.replace("feed.batch_results", patience))
    local.ok("%tfcluster start main_fun")
    cell = local.fails("%tfcluster inference data")
    assert "main_fun gave no results within 1 s for the " in cell.error, cell.all


@pytest.mark.engines
def test_failure(local: Notebook) -> None:
    """The cell shows why the program failed; the next run works."""
    local.ok(BATCHES.replace("return ctx.mode", "").replace("batch = ", "1 / (ctx.task_index == 0)\n        batch = "))
    local.ok("data = np.arange(100_000)")
    local.ok("%tfcluster start main_fun")
    cell = local.fails("%tfcluster inference data")
    assert cell.ename == "RunFailed" and "ZeroDivisionError" in cell.error and "worker:1" in cell.error, cell.all
    infer(local, "np.arange(1000)")
    assert local.ok("int(out.sum())").result == "999000"


@pytest.mark.engines
def test_a_program_that_leaves(local: Notebook) -> None:
    """A program that ends before all records have results is named."""
    local.ok(BATCHES.replace("return ctx.mode", "").replace("100)", "100); feed.batch_results(batch); return"))
    local.ok("data = np.arange(1_000_000)")
    local.ok("%tfcluster start main_fun")
    cell = local.fails("%tfcluster inference data")
    assert "inference needs a result for every record" in cell.error, cell.all


@pytest.mark.engines
def test_dataset(notebook: Notebook) -> None:
    """as_dataset hands out every record, whatever the batch size; a worker without a record has no batch."""
    notebook.ok("%tfcluster reserve --backend local --workers 2\n" + DATA)
    notebook.ok("""
def main_fun(args, ctx):
    feed = ctx.get_data_feed()
    sizes = []
    for batch in feed.as_dataset(100):
        sizes.append(int(batch.shape[0]))
        feed.results({"double": 2 * batch})
    return sizes
""")
    for rows in (1, 1003):
        notebook.ok(f"data = np.arange({rows} * 2, dtype='float32').reshape(-1, 2)")
        notebook.ok("%tfcluster start main_fun")
        notebook.ok("out = %tfcluster inference data")
        assert notebook.ok("out.shape == data.shape, bool((out == 2 * data).all())").result == "(True, True)", rows
