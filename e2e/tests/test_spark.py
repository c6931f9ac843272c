"""--backend spark as a notebook and a program use it, on Spark that runs on this machine alone."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import DEADLINE, ROOT, Notebook, processes, wait_for
from standalone import NEEDS_SPARK, SESSION
from test_notebooks import accuracy, by_nbclient, folder, outputs  # noqa: F401  a fixture

MAIN_FUN = """
def main_fun(args, ctx):
    import sys
    print("hello from", ctx.job_name, ctx.task_index, file=sys.stderr)
    return ctx.num_workers
"""

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]


def test_the_notebooks_own_session(notebook: Notebook) -> None:
    """Found by its name and lent; what it cannot take is said before anything starts; it goes on afterwards."""
    notebook.ok(SESSION)
    cell = notebook.fails("%tfcluster reserve --backend spark --memory 2g")
    assert "UsageError" in cell.error and "spark.executor.memory" in cell.error, cell.all
    assert "there is no cluster" in notebook.fails("%tfcluster status").error
    notebook.ok(MAIN_FUN)
    cell = notebook.ok(
        "import tfcluster\n"
        "with tfcluster.reserve(backend='spark', workers=2, zygote=False) as c:\n"
        "    assert c.spark() is spark\n"
        "    run = c.start(main_fun).wait()\n"
        "    print('sum', spark.range(5).selectExpr('sum(id) s').first().s)\n"
        "run.result"
    )
    assert cell.result == "2" and "sum 10" in cell.text, cell.all
    assert "[worker:1] hello from worker 1" in cell.stderr, cell.all
    assert notebook.ok("spark.range(7).count()").result == "7"
    cell = notebook.fails("%tfcluster reserve --backend spark --workers 3 --timeout 30")
    assert "Spark has 2 slots of 3" in cell.error and "local[N]" in cell.error, cell.all
    notebook.ok("%tfcluster reserve --backend spark --workers 2 --no-zygote --name one\nspark.stop()")
    over = "cluster one is over since "
    wait_for("the cluster's end", lambda: over in notebook.run("%tfcluster status").error)
    cell = notebook.fails("%tfcluster start main_fun")
    assert over in cell.error and "the SparkSession was stopped; %tfcluster reserve makes another" in cell.error, (
        cell.all
    )
    cell = notebook.fails("%tfcluster reserve --backend spark --workers 2")
    assert "the notebook's SparkSession spark cannot be used: the SparkSession was stopped; make it again" in cell.error


def test_a_session_of_the_clusters_own(notebook: Notebook) -> None:
    """--master makes one; the notebook uses it over Spark Connect, and it ends with the cluster."""
    notebook.ok(MAIN_FUN)
    cell = notebook.ok("c = %tfcluster reserve --backend spark --master local[2] --workers 2 --no-zygote")
    assert "2 executors = 2 workers" in cell.all
    assert "[worker:1] hello" in notebook.ok("%tfcluster start --wait main_fun").stderr
    if importlib.util.find_spec("grpc_status") is not None:
        assert notebook.ok("mine = c.spark()\nmine.range(7).count()").result == "7"
        notebook.ok("mine.stop()")
    assert "released" in notebook.ok("%tfcluster shutdown").all


def test_a_plain_program(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """A script with a session called spark: the same verbs, without a kernel."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import tfcluster\n{SESSION}\n{MAIN_FUN}\n"
        "with tfcluster.reserve(backend='spark', workers=2, zygote=False) as c:\n"
        "    print('result', c.start(main_fun).wait().result)\n"
        "print('sum', spark.range(5).selectExpr('sum(id) s').first().s)\n"
        "spark.stop()\n"
    )
    env = {**env, "PYTHONPATH": str(ROOT / "cluster" / "python")}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "result 2" in done.stdout and "sum 10" in done.stdout, done.stdout
    assert "[worker:0] hello from worker 0" in done.stderr, done.stderr


@pytest.fixture
def connect(env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[str]:
    """A Spark Connect server, and where a client finds it."""
    pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    home = pathlib.Path(importlib.util.find_spec("pyspark").origin).parent
    if not list((home / "jars").glob("spark-connect_*.jar")):
        pytest.skip("missing: Spark Connect's server among pyspark's jars")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for setting in ("address=127.0.0.1", f"port={port}"):
        command += ["--conf", f"spark.connect.grpc.binding.{setting}"]
    with (tmp_path / "connect.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"], env=env, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )
    try:

        def listens() -> bool:
            assert server.poll() is None, (tmp_path / "connect.log").read_text()
            with socket.socket() as conn:
                return conn.connect_ex(("127.0.0.1", port)) == 0

        wait_for("Spark Connect's server", listens)
        yield f"sc://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(DEADLINE)


def test_a_connect_server_that_dies(notebook: Notebook, connect: str, env: dict[str, str]) -> None:
    """The cluster on it ends with it, and nothing is reserved on it again."""
    notebook.ok(f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.remote({connect!r}).getOrCreate()")
    notebook.ok("%tfcluster reserve --backend spark --workers 1 --no-zygote --name one")
    server = next(pid for pid, words in processes(env["TFCLUSTER_TEST"]).items() if "SparkConnectServer" in words)
    os.killpg(os.getpgid(server), signal.SIGKILL)
    over = "cluster one is over since "
    wait_for("the cluster's end", lambda: over in notebook.run("%tfcluster status").error)
    assert "the Spark Connect server has not answered for" in notebook.fails("%tfcluster status").error
    cell = notebook.fails("%tfcluster reserve --backend spark --workers 1")
    assert "cannot be used: its Spark Connect server does not answer within 5 s" in cell.error, cell.all


def test_the_notebooks_on_spark_connect(
    folder: pathlib.Path,  # noqa: F811
    prefix: pathlib.Path,
    env: dict[str, str],
    connect: str,
) -> None:
    """04-spark and the two beside it, where the session is a client's: no JVM, no RDD."""
    out = folder / "out"
    out.mkdir()
    books = [str(path) for path in sorted(folder.glob("04*.ipynb"))]
    command = [sys.executable, str(folder / "run.py"), "--prefix", str(prefix), "--output", str(out), *books]
    done = subprocess.run(command, env={**env, "SPARK_MASTER": connect}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    text = outputs(out / "04-spark.ipynb")
    assert accuracy(text) >= 0.8
    assert "[worker:1] worker:1 of 2 trains on 4096 images" in text
    assert "Spark has 2 slots of 3" in text, text
    assert outputs(out / "04-spark-evaluate.ipynb").count(".keras: loss") == 10
    assert "TensorBoard of cluster digits" in outputs(out / "04-spark-tensorboard.ipynb")


def test_the_feed_notebook(folder: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> None:  # noqa: F811
    """06-feed: a DataFrame is trained on, evaluated, and joined with its predictions; then the same from pandas."""
    text = by_nbclient(folder / "06-feed.ipynb", prefix, env)
    assert "fed 20,480 of 20,480 records · epoch 5 of 5" in text and "fed 904 of 904 records" in text
    assert "fed 8,192 of 8,192 records · epoch 2 of 2" in text and "released in" in text
    evaluated = float(re.findall(r"'accuracy': (0\.\d+)", text)[-1])
    wrong = int(
        re.findall(r"^(\d+)$", text, re.MULTILINE)[-1]
    )  # the rows of the join whose prediction is not the label
    assert evaluated >= 0.6 and abs(1 - wrong / 904 - evaluated) < 0.001, text
