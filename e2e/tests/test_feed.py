"""train DATA and evaluate DATA: the notebook's arrays and Spark's DataFrames in the tasks, each record once."""

from __future__ import annotations

import pathlib

import pytest
from conftest import Notebook

COUNT = """
def count(args, ctx):
    import collections
    feed = ctx.get_data_feed()
    seen = collections.Counter()
    while not feed.should_stop():
        for record in feed.next_batch(100):
            seen[int(record if not isinstance(record, tuple) else record[0])] += 1
    return dict(seen)
"""
TOTAL = """
import collections
def total(run):
    seen = collections.Counter()
    for part in run.results.values():
        for record, n in part.items():
            seen[int(record)] += n
    return len(seen), set(seen.values()), sum(seen.values())
"""


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


def test_records_of_an_array(notebook: Notebook) -> None:
    """Each record of an array reaches one of two workers, once per epoch."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok(COUNT + TOTAL)
    notebook.ok("records = np.arange(100_003)")
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train records --epochs 3\ntotal(run)")
    assert cell.result == "(100003, {3}, 300009)", cell.all


@pytest.mark.engines
def test_large_records(notebook: Notebook) -> None:
    """A program that waits is given what comes: several slots' worth of partitions, several times."""
    notebook.ok("%tfcluster reserve --backend local --workers 1 --no-zygote --framework none\nimport numpy as np")
    notebook.ok("""
def adds(args, ctx):
    feed, records, total = ctx.get_data_feed(), 0, 0.0
    while (batch := feed.next_numpy(4096)) is not None:
        records, total = records + len(batch), total + float(batch.sum(dtype="float64"))
    return records, total
""")
    notebook.ok("x = np.ones((50_000, 784), dtype=np.float32)\n%tfcluster start adds")
    cell = notebook.ok("run = %tfcluster train x --epochs 2\nrun.result")
    assert cell.result == "(100000, 78400000.0)", cell.all


def test_what_is_waited_for(notebook: Notebook) -> None:
    """A run that waits for data says so; train says what it waits for, and why nothing can be fed."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok(COUNT + TOTAL + "records = np.arange(1000)")
    cell = notebook.fails("%tfcluster train records")
    assert "no run takes data: no program has been started" in cell.error, cell.all
    cell = notebook.ok("%tfcluster start --wait count")
    assert "waiting for data: %tfcluster train DATA" in cell.all, cell.all
    assert "waiting for data" in notebook.ok("%tfcluster status").all
    cell = notebook.fails("%tfcluster train object()")
    assert "there is no name" in cell.error or "no name" in cell.error, cell.all
    notebook.ok("word = 'text'")
    cell = notebook.fails("%tfcluster train word")
    assert "word cannot be fed: it is a str: give a Spark or pandas DataFrame" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train records --more\nrun.state")
    assert cell.result == "'running'" and "fed 1,000" in cell.all, cell.all
    cell = notebook.fails("%tfcluster evaluate records")
    assert "run 1 was begun by train: a run has one mode, and takes no evaluate" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train records\ntotal(run)")
    assert cell.result == "(1000, {2}, 2000)", cell.all
    cell = notebook.fails("%tfcluster train records")
    assert "no run takes data: run 1 has ended: it finished" in cell.error, cell.all
    notebook.ok("%tfcluster start count")
    waits = notebook.send("%tfcluster wait")
    notebook.shows(waits, "waiting for data: %tfcluster train DATA")
    notebook.manager.interrupt_kernel()
    assert "the run was stopped" in notebook.finish(waits).error


LATE = """
def late(args, ctx):
    import pathlib, time
    while ctx.task_index and not pathlib.Path(args[0]).exists():
        time.sleep(0.05)
    return count(args, ctx)
"""


@pytest.mark.engines
@pytest.mark.parametrize("option", ["", "--detach"])
def test_what_a_cell_keeps_of_the_waiting(notebook: Notebook, tmp_path: pathlib.Path, option: str) -> None:
    """train shows which tasks have not asked for data in its view, not in lines that stay."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok(COUNT + TOTAL + LATE + "records = np.arange(1000)")
    notebook.ok(f"%tfcluster start late {tmp_path}/go")
    feeds = notebook.send(f"%tfcluster train records {option}")
    notebook.shows(feeds, "waiting for worker:1 to call ctx.get_data_feed()")
    (tmp_path / "go").touch()
    cell = notebook.finish(feeds)
    assert cell.status == "ok", cell.all
    assert "waiting" not in cell.plain[-1] + cell.text, cell.all
    assert ("run 1 is fed; %tfcluster wait shows how far it is" in cell.plain[-1]) == bool(option), cell.all
    cell = notebook.ok("run = %tfcluster wait\ntotal(run)")
    assert cell.result == "(1000, {1}, 1000)", cell.all


@pytest.mark.engines
def test_a_program_that_fails(notebook: Notebook) -> None:
    """The cell shows the program's own error, at once, while the source has more records than fit."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok("""
def fails(args, ctx):
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_numpy(1000)
        if ctx.worker_num == 1:
            raise ValueError("enough")
""")
    notebook.ok("records = np.zeros((1_000_000, 100), dtype=np.float32)")
    notebook.ok("%tfcluster start fails")
    cell = notebook.fails("%tfcluster train records")
    assert "worker:1 on" in cell.error and "ValueError: enough" in cell.error, cell.all
    notebook.ok(COUNT + TOTAL)
    notebook.ok("few = np.arange(10)\n%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train few\ntotal(run)")
    assert cell.result == "(10, {1}, 10)", cell.all


@pytest.mark.engines
def test_a_program_that_leaves(notebook: Notebook) -> None:
    """A worker that reads no more leaves the rest to the others; when all have left, the source is stopped."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np")
    notebook.ok("""
def leaves(args, ctx):
    feed = ctx.get_data_feed()
    batch = feed.next_numpy(1000)
    feed.terminate()
    return len(batch)
""")
    notebook.ok("records = np.zeros((1_000_000, 100), dtype=np.float32)")
    notebook.ok("%tfcluster start leaves")
    cell = notebook.ok("run = %tfcluster train records\nrun.results")
    assert cell.result == "{'worker:0': 1000, 'worker:1': 1000}", cell.all
    assert "fed 2,000 of 1,000,000 records" in cell.all and "not read" in cell.all, cell.all


STUBBORN = """
def stubborn(args, ctx):
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    feed = ctx.get_data_feed()
    try:
        while not feed.should_stop():
            feed.next_batch(10)
            print("reads", flush=True)
            time.sleep(0.1)
    finally:
        time.sleep(600)
"""


@pytest.mark.engines
def test_two_interrupts(notebook: Notebook) -> None:
    """The first interrupt of train stops the run, the second kills what does not end; the cluster stays."""
    notebook.ok("%tfcluster reserve --backend local --workers 1 --no-zygote --framework none\nimport numpy as np")
    notebook.ok(STUBBORN + COUNT + TOTAL + "records = np.arange(100_000)\n%tfcluster start stubborn")
    feeds = notebook.send("%tfcluster train records")
    for words in ("[worker:0] reads", "interrupt again to kill them"):
        notebook.shows(feeds, words)
        notebook.manager.interrupt_kernel()
    cell = notebook.finish(feeds)
    assert "killing the run; the cluster stays" in cell.stderr and "the run was killed" in cell.error, cell.all
    notebook.ok("%tfcluster start count")
    assert notebook.ok("run = %tfcluster train records\ntotal(run)[0]").result == "100000"


@pytest.mark.engines
@pytest.mark.parametrize("data", ["{'x': np.arange(7), 'y': np.arange(7)}", "pd.DataFrame({'x': range(7), 'y': 1.5})"])
def test_records_of_columns(notebook: Notebook, data: str) -> None:
    """A record of columns is a tuple in their order."""
    notebook.ok("%tfcluster reserve --backend local --workers 2 --no-zygote --framework none")
    notebook.ok("import numpy as np, pandas as pd\n" + COUNT + TOTAL + f"data = {data}")
    notebook.ok("%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train data\ntotal(run)")
    assert cell.result == "(7, {1}, 7)", cell.all


EVALUATE = """
def main_fun(args, ctx):
    import keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = ctx.get_data_feed()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile("sgd", "mse", metrics=["mae"])
    model.evaluate(feed.as_dataset(32), verbose=0)
"""


def test_evaluation_under_a_strategy(notebook: Notebook) -> None:
    """evaluate leaves no record out, whatever their number is; its value is what model.evaluate found."""
    notebook.ok("%tfcluster reserve --backend local --workers 2\nimport numpy as np")
    notebook.ok(EVALUATE + "x = np.random.default_rng(0).random((5001, 4), dtype=np.float32)")
    for n in (5001, 129):  # 129: the batches of one worker are full, the other has one record more
        notebook.ok(f"data = {{'x': x[:{n}], 'y': np.where(np.arange({n}) == {n} - 1, 1000, 0) + x[:{n}].sum(1)}}")
        notebook.ok("%tfcluster start main_fun")
        cell = notebook.ok("found = %tfcluster evaluate data --label y\nsorted(found), round(found['mae'], 3)")
        assert cell.result == f"(['loss', 'mae'], {round(1000 / n, 3)})", cell.all


FIT = """
def main_fun(args, ctx):
    import keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = ctx.get_data_feed()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    model.fit(feed.as_dataset(32), epochs=ctx.epochs, verbose=0, callbacks=[count])
    return len(steps), [float(w.sum()) for w in model.get_weights()]
"""


WEIGHTS = FIT.replace("float(w.sum())", "w.tobytes()")
LOOP = """
def loop(args, ctx):
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed, sizes, count, total = ctx.get_data_feed(), [], 0, 0
    for _ in range(ctx.epochs):
        for element in strategy.experimental_distribute_dataset(feed.as_dataset(32)):
            x, y, *rest = (strategy.experimental_local_results(values)[0].numpy() for values in element)
            weights = rest[0] if rest else np.ones(len(x))
            sizes.append(len(x))
            count, total = count + int(weights.sum()), total + int((y * weights).sum(dtype="float64"))
    return sizes, count, total
"""


@pytest.mark.engines
@pytest.mark.parametrize(("uneven", "records"), [("drop", 10_000), ("pad", 10_002)])
def test_each_record_counts_once(notebook: Notebook, uneven: str, records: int) -> None:
    """A loop under MultiWorkerMirroredStrategy, and fit: equal batches, each record once per epoch. What is repeated to
    that end has weight 0; without it two of the 10,002 records of two epochs are left out."""
    notebook.ok("%tfcluster reserve --backend local --workers 2\nimport numpy as np")
    notebook.ok(
        LOOP + WEIGHTS + "x = np.random.default_rng(0).random((5001, 4), dtype=np.float32)\n"
        "data = {'x': x, 'y': np.arange(5001, dtype='float32')}"
    )
    notebook.ok("%tfcluster start loop")
    cell = notebook.ok(
        f"run = %tfcluster train data --label y --epochs 2 --uneven {uneven}\n"
        "(sizes, *first), (others, *second) = run.results.values()\n"
        "sizes == others, *np.sum([first, second], axis=0).tolist()"
    )
    equal, count, total = eval(cell.result)
    assert equal and count == records and 0 <= 5000 * 5001 - total <= 2 * 5000, cell.all
    assert (total == 5000 * 5001) == (uneven == "pad"), cell.all
    notebook.ok("%tfcluster start main_fun")
    cell = notebook.ok(
        f"run = %tfcluster train data --label y --epochs 2 --uneven {uneven}\n"
        "first, second = run.results.values()\nfirst == second, first[0]"
    )
    assert cell.result == "(True, 316)", cell.all  # of 16 records: half of a global batch
    assert ("2 records left out" in cell.all) == (uneven == "drop"), cell.all
    assert f"fed {records:,} of 10,002 records" in cell.all and "ran out of data" not in cell.all, cell.all


SERVERS = """
def main_fun(args, ctx):
    import numpy as np, tensorflow as tf
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ctx.job_name in ("worker", "ps"):
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=ctx.job_name, task_index=ctx.task_index, protocol="grpc"
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total, count = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def add(batch):
        total.assign_add(tf.reduce_sum(batch))
        count.assign_add(tf.shape(batch, out_type=tf.int64)[0])

    feed, seen = ctx.get_data_feed(), 0
    if args[0] == "per-worker":
        coordinator.create_per_worker_dataset(lambda: feed.as_dataset(64))
    for _ in range(ctx.epochs):
        for batch in feed.as_dataset(64) if args[0] == "dataset" else feed.as_iterable(64):
            coordinator.schedule(add, args=(batch,))
            seen += len(batch)
    coordinator.join()
    return int(total.numpy()), int(count.numpy()), seen
"""


@pytest.mark.engines
def test_parameter_servers(notebook: Notebook) -> None:
    """The chief reads every record, and gives batches to the workers, which only serve: nobody waits for them."""
    notebook.ok("%tfcluster reserve --backend local --chief --workers 1 --ps 1\nimport numpy as np, time")
    notebook.ok(SERVERS + "records = np.arange(1003)")
    for way in ("iterable", "dataset"):
        notebook.ok(f"%tfcluster start main_fun {way}")
        cell = notebook.ok("run = %tfcluster train records --epochs 2\nrun.result")
        assert cell.result == f"({1003 * 1002}, 2006, 2006)", cell.all
    notebook.ok("%tfcluster start main_fun per-worker")
    cell = notebook.fails("%tfcluster train records")
    assert "pass batches to coordinator.schedule" in cell.error, cell.all


@pytest.mark.engines
def test_servers_alone(notebook: Notebook) -> None:
    """Where every task serves nobody can be fed, and train says so at once."""
    notebook.ok("%tfcluster reserve --backend local --workers 1 --ps 1\nimport numpy as np, time")
    notebook.ok(SERVERS + "records = np.arange(1003)\n%tfcluster start main_fun iterable")
    notebook.ok("begin = time.monotonic()")
    cell = notebook.fails("%tfcluster train records")
    assert "no task of run 1 reads it" in cell.error and "tf.distribute.Server.join()" in cell.error, cell.all
    assert notebook.ok("time.monotonic() - begin < 30").result == "True"
