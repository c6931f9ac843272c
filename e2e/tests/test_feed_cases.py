"""The acceptance cases of the feed, and those of their tests that are in no other file.

A name is of a test here, or of another file; units is cluster/python/tests. test_the_table reads it.

A1  start and form               test_feed.test_what_is_waited_for, test_detached_in_a_script
A2  kinds of DATA                test_feed_spark.test_dataframe, test_connect, test_feed_ends.rdds, test_inference.*
A3  a DataFrame of another session, or for another backend: is fed as well, test_feed_carried.*
B1  columns                      test_feed_types.test_columns, units.test_feed.test_features_and_label
B2  types                        test_feed_types.*, units.test_feed.test_types, units.test_feed.test_binary
B3  ragged arrays, NULL          test_feed_types.test_what_cannot_be_fed, units.test_feed_records.*
B4  --cast                       test_feed_types.test_columns, units.test_feed.test_cast
C1  each record once per epoch   test_feed.test_records_of_an_array, test_uneven_partitions
C2  batches across partitions    units.test_feed.test_next_batch, units.test_feed.test_drop_remainder
C3  --shuffle                    units.test_feed.test_shuffle_and_steps
C4  --steps                      test_feed_ends.stopped_sources, test_connect, units.test_feed_dataset.test_steps
D1  uneven partitions            test_uneven_partitions, test_feed.test_each_record_counts_once (--uneven pad, too)
D2  the end, once                test_uneven_partitions, units.test_feed.test_epochs_of_an_iterable
D3  producers elsewhere          test_feed_faults.test_executors_elsewhere, test_feed_carried.*
D4  programs that leave          test_feed_ends.stopped_sources, test_feed.test_a_program_that_leaves
D5  --more                       test_feed.test_what_is_waited_for
E1  the program fails            test_feed_ends.stopped_sources, test_feed.test_a_program_that_fails
    or is killed                 test_feed_faults.test_killed, test_feed_faults_spark.test_killed
    on Spark Connect             test_feed_connect.test_ends (E1, E5 and E7)
E2  Spark tries a task again     test_feed_ends.rdds, test_inference_spark.test_errors, test_feed_faults_spark.*
    with other records           test_feed_ends.rdds, units.test_feed_producer.test_another_order
    took a task's Python away    test_feed_connect.test_pythons_of_a_killed_task
E3  speculation, lost executors  test_feed_speculation.*, test_feed_faults_spark.test_killed
E4  an error in DATA             test_feed_spark.test_dataframe, test_connect, test_feed_ends.rdds
E5  interrupt                    test_feed_ends.interrupted, test_feed.test_two_interrupts
E6  memory                       test_feed_memory.test_ten_gigabytes, units.test_feed_slots.*
E7  nothing is left              test_feed_faults.test_killed, test_feed_faults_spark.test_killed
E8  no slot is free, --gpus      test_no_free_slot, test_feed_gpus.*, units.test_spark_gpus.*
F1  evaluate                     test_feed.test_evaluation_under_a_strategy, test_feed_ends.unequal_workers
    what was found               units.test_feed.test_what_an_evaluation_found
F2  inference                    test_inference.*, test_inference_spark.test_classic
F3  its value                    test_inference_spark.test_classic, test_inference_spark.test_connect
F4  any number of records        test_inference.*, test_inference_spark.test_errors
F5  TensorFlowOnSpark's names    test_tensorflowonspark.test_mnist, units.test_feed.test_input_mapping
G1  what the cell shows          test_feed.test_what_is_waited_for, test_uneven_partitions; TestFeedLine in magics/verbs
H1  rates                        make bench
Two clusters at the same time    test_two_clusters; TestRefused in cluster/agent/feed
YARN: C1, D1, D4, E1, F1, F2     TestFeed in e2e/yarn
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from conftest import DEADLINE, ROOT, Notebook
from standalone import needs_spark
from test_feed import COUNT, FIT, TOTAL
from test_feed_spark import EVALUATE


def test_the_table() -> None:
    """Every test that the table names is there, and every case has one."""
    cases = set()
    here = pathlib.Path(__file__)
    for line in (__doc__ or "").splitlines():
        if re.match(r"[A-H]\d  ", line):
            cases.add(line[:2])
        for name in re.findall(r"\b(?:units\.)?test_\w+(?:\.[\w*]+)?", line[33:]):
            folder = ROOT / "cluster" / "python" / "tests" if name.startswith("units.") else here.parent
            file, _, test = name.removeprefix("units.").rpartition(".")
            path = folder / f"{file}.py" if file else here
            assert path.exists() and (test == "*" or f"\ndef {test}(" in path.read_text()), (
                f"{line}: there is no {name}"
            )
    numbers = {"A": 3, "B": 4, "C": 4, "D": 5, "E": 8, "F": 5, "G": 1, "H": 1}
    assert cases == {f"{letter}{n + 1}" for letter, count in numbers.items() for n in range(count)} and len(cases) == 31


SESSION = """
import threading, time
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.master("local[6]").config("spark.ui.enabled", "false").getOrCreate()
"""
LOCAL = "%tfcluster reserve --backend local --workers 2 --no-zygote --framework none\nimport numpy as np"
SPARK = "%tfcluster reserve --backend spark --workers 2 --no-zygote --framework none"


# ------------------------------------------------------------ uneven partitions: C1, D1, D2

UNEVEN = "uneven = spark.range(0, 3000, 1, 3).where('id < 1010')  # partitions of 1,000, 10 and 0 records\n"
ITERATE = """
def iterate(args, ctx):
    sizes, total = [], 0
    for batch in ctx.get_data_feed().as_dataset(11):
        sizes.append(int(batch.shape[0]))
        total += int(batch.numpy().sum())
    return len(sizes), sum(sizes), total
"""
LONGER = FIT.replace("def main_fun", "def longer").replace("epochs=ctx.epochs", "epochs=ctx.epochs + 1")
HASH = "hashlib.sha256(b''.join(w.tobytes() for w in model.get_weights())).hexdigest()"
BITS = FIT.replace("[float(w.sum()) for w in model.get_weights()]", HASH).replace("import ", "import hashlib, ", 1)


@pytest.mark.engines
@needs_spark
def test_uneven_partitions(shared: Notebook) -> None:
    """C1, D1, D2: 1,000 : 10 : 0 records on three workers, with each way of reading; fit asks for more than is fed."""
    shared.ok(SESSION + UNEVEN + COUNT + TOTAL + ITERATE + BITS + LONGER)
    shared.ok("%tfcluster reserve --backend spark --workers 3")
    shared.ok("%tfcluster start count")
    cell = shared.ok("run = %tfcluster train uneven --epochs 2\ntotal(run)")
    assert cell.result == "(1010, {2}, 2020)", cell.all
    assert "fed 2,020 of 2,020 records" in cell.all and "left out" not in cell.all, cell.all
    shared.ok("%tfcluster start iterate")
    cell = shared.ok("run = %tfcluster train uneven\nlist(run.results.values())")
    counts = eval(cell.result)
    assert [c[:2] for c in counts] == [(31, 336)] * 3, cell.all
    assert "fed 1,008 of 1,010 records" in cell.all and "2 records left out" in cell.all, cell.all
    shared.ok(
        "x, y = F.array(*[F.rand(1).cast('float')] * 4).alias('x'), F.rand(2).alias('y')\n"
        "pairs, whole = uneven.select(x, y), spark.range(0, 5001, 1, 4).select(x, y)"
    )
    # TensorFlow makes three batches of a global one of 32: of 336 records 3 * 10 + 3, of 1,667 records 3 * 52 + 3.
    for data, epochs, steps, fed in (
        ("pairs", 1, 33, "fed 1,008 of 1,010 records · 2 records left out"),
        ("whole", 2, 2 * 159, "fed 10,002 of 10,002 records"),
    ):
        shared.ok("%tfcluster start main_fun")
        cell = shared.ok(
            f"run = %tfcluster train {data} --label y --epochs {epochs}\nsteps, weights = zip(*run.results.values())\n"
            "set(steps), len(set(weights))"
        )
        assert cell.result == f"({{{steps}}}, 1)", cell.all
        assert fed in cell.all and ("left out" in fed or "left out" not in cell.all), cell.all
        assert "ran out of data" not in cell.all, cell.all
    shared.ok(BITS.replace("epochs=ctx.epochs", "steps_per_epoch=100") + "%tfcluster start main_fun")
    assert "ran out of data" in shared.ok("%tfcluster train pairs --label y").all
    shared.ok("%tfcluster start longer")
    cell = shared.fails("%tfcluster train pairs --label y")
    assert "the feed is over: it had 1 epoch" in cell.error, cell.all


# ------------------------------------------------------------------------- slots of Spark: E8


@pytest.mark.engines
@needs_spark
def test_no_free_slot(shared: Notebook, tmp_path: pathlib.Path) -> None:
    """E8: while tasks of the user's own jobs have every slot, the cell says so; then the feed goes on."""
    go = tmp_path / "go"
    shared.ok(SESSION.replace("local[6]", "local[2]") + COUNT + TOTAL + LOCAL)
    shared.ok(
        "def hold(_):\n    import pathlib, time\n"
        f"    while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
        "numbers = spark.sparkContext.parallelize(range(2), 2)\n"
        "threading.Thread(target=numbers.foreach, args=[hold]).start()\n"
        "while len(spark.sparkContext.statusTracker().getActiveStageIds()) == 0: time.sleep(0.05)"
    )
    shared.ok("df = spark.range(1000)\n%tfcluster start count")
    feeds = shared.send("run = %tfcluster train df\ntotal(run)[0]")
    shared.shows(feeds, "waiting for a free slot of Spark: 2 tasks of other jobs run")
    go.touch()
    cell = shared.finish(feeds)
    assert cell.result == "1000", cell.all


# --------------------------------------------------------- two clusters; feeds that are detached

TOGETHER = """
import pathlib, tfcluster, numpy as np
from tfcluster import feed_source
from tfcluster.feed_link import Link, Stopped

def await_files(folder, count):
    import pathlib, time
    end = time.monotonic() + 300
    while len(list(pathlib.Path(folder).glob("met-*"))) < count:
        assert time.monotonic() < end, "the others do not come"
        time.sleep(0.02)

def reads(args, ctx):  # args: a folder, a name, where the sockets are
    import pathlib
    from tfcluster.feed_link import Link, Stopped
    feed, seen, refused = ctx.get_data_feed(), set(), []
    seen.update(feed.next_numpy(1).tolist())
    pathlib.Path(args[0], f"met-{args[1]}-{ctx.task_index}").touch()
    await_files(args[0], 4)  # both clusters are fed now
    own, key = feed._reader.address
    for path in pathlib.Path(args[2]).rglob("feed-*.sock"):
        if str(path) != own:
            link = Link(str(path))
            link.send("consume", key=key)
            try:
                link.receive()
            except Stopped as e:
                refused.append(e.reason)
            link.close()
    pathlib.Path(args[0], f"met-{args[1]}-{ctx.task_index}-tried").touch()
    await_files(args[0], 9)  # all four have tried, and so has a producer
    while (batch := feed.next_numpy(1000)) is not None:
        seen.update(batch.tolist())
    return sorted(seen), refused

orders, deliver = [], feed_source.deliver
def captured(order, *rest, **options):
    orders.append(order)
    return deliver(order, *rest, **options)
feed_source.deliver = captured
"""
INTRUDER = """
import pyarrow as pa
said = []
await_files(folder, 8)
by_feed = {order["key"]: order for order in orders}
for mine in by_feed.values():
    for other in by_feed.values():
        if mine is not other:
            try:
                deliver({**mine, "holders": other["holders"]}, 0, 99, 0, [pa.record_batch({"": [7]})])
            except feed_source.Stopped as e:
                said.append(str(e))
pathlib.Path(folder, "met-producer").touch()
print(len(by_feed), said)
"""


@pytest.mark.engines
def test_two_clusters(notebook: Notebook, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Two clusters of one user on one host are fed at the same time; no key opens what is the other's."""
    notebook.ok(TOGETHER + f"folder = {str(tmp_path)!r}")
    for name, value in (("one", 1), ("two", 2)):
        notebook.ok(
            f"{name} = tfcluster.reserve(name={name!r}, backend='local', workers=2, zygote=False, framework='none')\n"
            f"{name}.start(reads, words=[folder, {name!r}, {env['XDG_RUNTIME_DIR']!r}])\n"
            f"{name}.train(np.full(100_003, {value}), detach=True)"
        )
    cell = notebook.ok(INTRUDER)
    number, _, said = cell.text.partition(" ")
    assert number == "2", cell.all
    assert len(eval(said)) == 2 and all("takes no records of this feed" in s for s in eval(said)), cell.all
    for name, value in (("one", 1), ("two", 2)):
        cell = notebook.ok(f"run = {name}.wait()\nlist(run.results.values())")
        for seen, refused in eval(cell.result):
            assert seen == [value] and refused == ["this is the feed of another task"] * 3, cell.all
        assert "fed 100,003 of 100,003 records" in cell.all, cell.all


SCRIPT = """
import numpy as np, tfcluster
{programs}
def bad():
    yield np.arange(10)
    raise ValueError("the source's own")
with tfcluster.reserve(backend="local", workers=2, zygote=False, framework="none") as c:
    c.start(count)
    print("state", c.train(np.arange(100_003), epochs=3, detach=True).state)
    print("total", total(c.wait()))
    c.start(count)
    c.train(bad(), detach=True)
    try:
        c.wait()
    except tfcluster.ClusterError as e:
        print("said", e)
    print("total", total(c.train(np.arange(100))))
"""


@pytest.mark.engines
def test_detached_in_a_script(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """train(detach=True) of a plain program: the feed goes on behind the call, and wait says how it ended."""
    program = tmp_path / "program.py"
    program.write_text(SCRIPT.replace("{programs}", COUNT + TOTAL))
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**env, "PYTHONPATH": str(ROOT / "cluster" / "python")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "state running" in done.stdout and "total (100003, {3}, 300009)" in done.stdout, done.stdout
    assert "the data could not be read: ValueError: the source's own" in done.stdout, done.stdout
    assert "total (" in done.stdout.partition("said")[2], done.stdout


# ------------------------------------------------------------------- Spark Connect


ENDS = """
def ends(args, ctx):
    import pathlib, time
    feed, last = ctx.get_data_feed(), 0.0
    for n in range(int(args[0])):
        if feed.next_numpy(1000) is None:
            break
        last = time.time()
        if args[1:]:
            pathlib.Path(args[1], f"reads-{ctx.task_index}").touch()
            time.sleep(0.05)
    return last
"""


@pytest.mark.engines
@needs_spark
def test_connect(notebook: Notebook) -> None:
    """A2, E4, C4: train and evaluate of a session of Spark Connect."""
    pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    notebook.ok("c = " + SPARK.replace("spark", "spark --master local[4]"))
    notebook.ok("from pyspark.sql import functions as F\nspark = c.spark()\n" + COUNT + TOTAL + EVALUATE + ENDS)
    notebook.ok(
        "df = spark.range(10_003).withColumn('x', F.array(*[F.col('id').cast('float')] * 3)).repartition(5)\n"
        "wrong = df.withColumn('u', F.udf(lambda i: 1 // (i - 5000), 'long')('id'))"
    )
    notebook.ok("%tfcluster start count")
    cell = notebook.fails("%tfcluster train wrong")
    assert "ZeroDivisionError" in cell.error, cell.all
    cell = notebook.ok("run = %tfcluster train df --epochs 2\ntotal(run)[0], min(total(run)[1])")
    assert cell.result == "(10003, 2)", cell.all  # and what the other partitions of wrong had delivered
    notebook.ok("%tfcluster start evaluate")
    cell = notebook.ok("found = %tfcluster evaluate df --columns x --label id\ndict(found) == {'mean': 5001}")
    assert cell.result == "True", cell.all
    notebook.ok("long = spark.range(0, 10**10, 1, 12)\n%tfcluster start ends 1000000")
    cell = notebook.ok("import time\nrun = %tfcluster train long --steps 5\ntime.time() - max(run.results.values())")
    assert "not read" in cell.all, cell.all
    print(f"the cell ended {float(cell.result):.2f} s after the last record was read")
    cell = notebook.ok("spark.range(0, 100, 1, 4).selectExpr('sum(id) s').first().s")  # with all slots
    assert cell.result == "4950", cell.all
    notebook.ok("spark.stop()\n%tfcluster shutdown")
